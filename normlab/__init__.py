"""Normalization layers, their proofs and their checks: the package behind the book."""

from __future__ import annotations

import importlib
import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normlab.checks import check_layer
    from normlab.checks.fingerprint import identify
    from normlab.checks.inspection import doctor

__version__ = "0.3.0"
__all__ = ["check_layer", "doctor", "identify"]


# A module of version 0.2 -> where it is now. Its old path raises for one version.
_MOVED = {
    **{name: f"book.{name}" for name in ("bench", "exercises", "experiments", "kernel_models")},
    **{name: f"book.{name}" for name in ("plotting", "sources")},
    **{name: f"checks.{name}" for name in ("fingerprint", "inspection", "probing")},
    **{
        f"checks.{name}": f"book.proofs.{name}"
        for name in ("gradient_rules", "invariances", "linear_norms")
    },
}


class _MovedFinder(MetaPathFinder):
    """Says where a module is now that is imported by its old path.

    It comes first: what an update leaves of an old folder, such as `__pycache__`, can be imported.
    """

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        package, _, rest = fullname.partition(".")
        if package != __name__ or rest in ("experiments", "experiments.__main__"):
            return
        for old, new in _MOVED.items():
            if f"{rest}.".startswith(f"{old}."):
                now = f"{package}.{new}{rest.removeprefix(old)}"
                raise ModuleNotFoundError(f"{fullname} has moved; import {now}")


sys.meta_path.insert(0, _MovedFinder())

_HOMES = {
    "check_layer": "normlab.checks",
    "doctor": "normlab.checks.inspection",
    "identify": "normlab.checks.fingerprint",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that the NumPy reference can be imported without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
