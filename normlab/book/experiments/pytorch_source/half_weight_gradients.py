"""Where does torch lose the weight gradients of a norm when the input has 16 bits, on CPU?"""

from __future__ import annotations

import warnings
from typing import Literal, get_args

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional

from normlab import layers
from normlab.book.experiments.processor import vector_code, with_threads
from normlab.book.experiments.sweep import experiment
from normlab.book.kernel_models import add_buffers, weight_gradient_buffers
from normlab.book.kernel_models.rounding import StoredDtype
from normlab.norms import NORMS

FEATURES = 4
Norm = Literal[  # and the parameter whose gradient is looked at
    "layer_norm, bias",
    "layer_norm, weight",
    "group_norm, bias",
    "group_norm, weight",
    "batch_norm, bias",
    "rms_norm, weight",
    "normlab layer_norm, bias",
]


def _inputs(norm: Norm, dtype: StoredDtype, rows: int) -> tuple[Tensor, Tensor]:
    x = torch.ones(rows, FEATURES, dtype=getattr(torch, dtype))
    if norm.startswith("batch_norm"):
        x[1::2] = -1  # a batch norm needs the spread inside a column
    else:
        x[:, 1::2] = -1
    return x, torch.ones_like(x)


def _parameter_gradient(norm: Norm, x: Tensor, dy: Tensor, dtype: torch.dtype) -> Tensor:
    name, parameter = norm.removeprefix("normlab ").split(", ")
    function = getattr(layers if norm.startswith("normlab ") else functional, name)
    parameters = {
        "weight": torch.ones(FEATURES, dtype=dtype, requires_grad=True),
        "bias": torch.zeros(FEATURES, dtype=dtype, requires_grad=True),
    }
    shape = {"normalized_shape": (FEATURES,), "num_groups": 1}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")
        y = function(x, *NORMS[name].arguments(**shape, **parameters))
    (gradient,) = torch.autograd.grad(y, parameters[parameter], dy)
    return gradient


def _predict(
    norm: Norm, x: Tensor, dy: Tensor, threads: int, dtype: StoredDtype, stored: StoredDtype
) -> float:
    _, mean, rstd = torch.native_layer_norm(x, (FEATURES,), None, None, 1e-5)
    buffers = weight_gradient_buffers(
        *(t.float().numpy() for t in (dy, x, mean.flatten(), rstd.flatten())),
        threads=threads,
        dtype=dtype,
        fused=vector_code().fused,
    )
    return abs(float(add_buffers(buffers[norm.endswith("bias")], stored)[0]))


@experiment(norm=get_args(Norm), dtype=("float32", "bfloat16", "float16"), threads=(1, 2))
def half_weight_gradients(
    norm: Norm,
    dtype: StoredDtype,
    threads: PositiveInt,
    *,
    parameter_dtype: Literal["same", "float32"] = "same",
    rows: PositiveInt = 4096,
) -> dict[str, float | None]:
    """Take the gradient by a weight or a bias, which is summed over many rows.

    The gradient by the output is ones, and the rows have alternating signs, so that x_hat is 1 or
    -1 and the gradient is the number of rows, or minus that.

    Args:
        norm: of torch or normlab, each with a parameter.
        threads: what torch may use; only LayerNorm's result depends on it.
        parameter_dtype: of weight and bias; "same" is the input's.

    Returns:
        gradient: absolute value of its first entry; right is the number of rows.
        predicted: first entry as
            :func:`~normlab.book.kernel_models.weight_gradient_buffers` gives it for LayerNorm; None
            for the other norms.
    """
    stored = dtype if parameter_dtype == "same" else parameter_dtype
    x, dy = _inputs(norm, dtype, rows)
    with with_threads(threads):
        gradient = _parameter_gradient(norm, x, dy, getattr(torch, stored)).double()
    modeled = norm.startswith("layer_norm")
    return {
        "gradient": abs(gradient[0].item()),
        "predicted": _predict(norm, x, dy, threads, dtype, stored) if modeled else None,
    }
