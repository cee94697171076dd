"""Other people's norms of the same formula, where they are installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from torch import Tensor

from normlab.bench.cases import EPS, GROUPS, Case

Function = Callable[..., Any]

# norm -> class of `transformers` -> model
_TRANSFORMERS = {"rms_norm": {"LlamaRMSNorm": "llama", "T5LayerNorm": "t5"}}


def find_peers(case: Case) -> dict[str, Function]:
    """Variants of a case as f(x, [residual,] weight[, bias]), by name.

    Returns:
        RMS norms of `transformers`, which are operations of torch, and on a GPU the norms of Liger
        Kernel, which are Triton's; none where neither package is installed.
    """
    found: dict[str, Function] = {}
    if importlib.util.find_spec("transformers"):
        for name, model in _TRANSFORMERS.get(case.norm, {}).items():
            path = f"transformers.models.{model}.modeling_{model}"
            made = getattr(importlib.import_module(path), name)(case.parameters[0], eps=EPS)
            found[name] = _with_weight(made)
    if case.device == "cuda" and importlib.util.find_spec("liger_kernel"):
        liger = importlib.import_module("liger_kernel.transformers.functional")
        if (function := liger_norm(liger, case)) is not None:
            found["Liger"] = function
    return found


def _with_weight(module: Any) -> Function:
    """The module as a function of its weight, at the cost of an assignment."""
    del module.weight
    attributes = vars(module)

    def call(x: Tensor, weight: Tensor) -> Any:
        attributes["weight"] = weight
        return module(x)

    return call


def liger_norm(liger: Any, case: Case) -> Function | None:
    """The norm of a case among Liger's functions, or None."""
    # in place would write the gradient of the input over the one from above, which is used again
    kept = {"in_place": False}
    calls: dict[str, tuple[str, tuple[object, ...], dict[str, bool]]] = {
        "layer_norm": ("liger_layer_norm", (EPS,), {}),
        "rms_norm": ("liger_rms_norm", (EPS,), kept),
        "group_norm": ("liger_group_norm", (case.parameters[0], GROUPS, EPS), {}),
        "add_rms_norm": ("liger_fused_add_rms_norm", (EPS,), kept),
    }
    name, fixed, options = calls.get(case.norm, ("", (), {}))
    function = getattr(liger, name, None)
    if function is None:
        return None
    return lambda *tensors: function(*tensors, *fixed, **options)
