"""A wrong norm, or a wrong residual block, with the name that it must fail under."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CONSTRUCTED = "constructed"


@dataclass(frozen=True)
class Mutant:
    """Right but for one mistake.

    Attributes:
        norm: what it claims to be: a key of :data:`normlab.norms.NORMS`, or "pre_norm",
            "deep_norm", "deep_norm_init".
        name: of the mistake.
        description: what it does.
        make: gives the wrong function or module.
        mistake: `Failure.mistake` that a report must name; empty where the check says it all.
        source: where it was met: a paper's code, an issue, a pull request; "constructed" where
            nobody is known to have made this mistake in this norm.
    """

    norm: str
    name: str
    description: str
    make: Callable[[], Callable[..., Any]]
    mistake: str
    source: str = CONSTRUCTED
