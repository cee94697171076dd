"""Probing any layer: its shapes, parameters, eps and state, found by calling it.

:class:`ForeignLayer` is any layer, called with a tensor and left as it was. :func:`as_norm` gives
one that is called as a norm of a family, with weights and statistics of the caller's choosing.
"""

from normlab.checks.probing.functions import ForeignFunction
from normlab.checks.probing.inputs import choose_input
from normlab.checks.probing.layer import ForeignLayer, NoNorm
from normlab.checks.probing.modules import ForeignModule, ForeignNorm, as_norm
from normlab.checks.probing.state import copy_module, preserve_state, uncompiled

__all__ = [
    "ForeignFunction",
    "ForeignLayer",
    "ForeignModule",
    "ForeignNorm",
    "NoNorm",
    "as_norm",
    "choose_input",
    "copy_module",
    "preserve_state",
    "uncompiled",
]
