"""Norms of Liger Kernel, another package of Triton kernels, where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from normlab.book.bench.cases import EPS, Case


def find_peers(case: Case) -> dict[str, Callable[..., Any]]:
    """Liger's layer norm or RMS norm as f(x, weight[, bias]) under its name; it needs a GPU."""
    if case.device != "cuda" or importlib.util.find_spec("liger_kernel") is None:
        return {}
    liger = importlib.import_module("liger_kernel.transformers.functional")
    # in place would write the gradient of the input over the one from above, which is used again
    fixed = {"layer_norm": {}, "rms_norm": {"in_place": False}}.get(case.norm)
    if fixed is None:
        return {}
    function = getattr(liger, f"liger_{case.norm}")
    return {"Liger": lambda *tensors: function(*tensors, EPS, **fixed)}
