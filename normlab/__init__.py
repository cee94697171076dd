"""Normalization layers, their proofs and their checks: the package behind the book."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normlab.checks import check_layer
    from normlab.fingerprint import identify
    from normlab.inspection import doctor

__version__ = "0.3.0"
__all__ = ["check_layer", "doctor", "identify"]


_HOMES = {
    "check_layer": "normlab.checks",
    "doctor": "normlab.inspection",
    "identify": "normlab.fingerprint",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that the NumPy reference can be imported without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
