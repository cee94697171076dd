"""What a notebook needs to speak about the package: its source, its numbers, its set-up."""

from normlab.sources.gluing import glue
from normlab.sources.listing import show, source_of
from normlab.sources.notebook import setup

__all__ = ["glue", "setup", "show", "source_of"]
