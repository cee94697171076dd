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


# A room of version 0.2 -> where it is now. Its old path raises for one version.
_MOVED = dict.fromkeys(
    ("bench", "exercises", "experiments", "kernel_models", "plotting", "sources"), "book"
) | dict.fromkeys(("fingerprint", "inspection", "probing"), "checks")


class _MovedFinder(MetaPathFinder):
    """Says where a module is now that is imported by its old path.

    It comes first: what an update leaves of an old folder, such as `__pycache__`, can be imported.
    """

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        package, _, rest = fullname.partition(".")
        roof = _MOVED.get(rest.partition(".")[0])
        command = rest in ("experiments", "experiments.__main__")
        if package == __name__ and roof is not None and not command:
            raise ModuleNotFoundError(f"{fullname} has moved; import {package}.{roof}.{rest}")


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
