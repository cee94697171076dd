"""Normalization layers, their proofs and their checks: the package behind the book."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normlab.fingerprint import identify
    from normlab.inspection import doctor

__version__ = "0.1.0"
__all__ = ["doctor", "identify"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that the NumPy reference can be imported without torch."""
    if name == "identify":
        from normlab.fingerprint import identify

        return identify
    if name == "doctor":
        from normlab.inspection import doctor

        return doctor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
