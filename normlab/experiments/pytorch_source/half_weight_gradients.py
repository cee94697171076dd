"""Where does torch lose the weight gradients of a norm when the input has 16 bits, on CPU?"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, group_norm, layer_norm, rms_norm

from normlab.experiments.processor import vector_code, with_threads
from normlab.experiments.settings import Count, check_settings
from normlab.kernel_models import add_buffers, weight_gradient_buffers
from normlab.kernel_models.rounding import StoredDtype
from normlab.layers import layer_norm as normlab_layer_norm

__all__ = ["NORMS", "Config", "Outcome", "Result", "run"]

FEATURES = 4
Norm = Callable[[Tensor, Tensor, Tensor], Tensor]

# Parameter whose gradient is looked at, and the call.
NORMS: dict[str, tuple[Literal["weight", "bias"], Norm]] = {
    "layer_norm, bias": ("bias", lambda x, w, b: layer_norm(x, (FEATURES,), w, b)),
    "layer_norm, weight": ("weight", lambda x, w, b: layer_norm(x, (FEATURES,), w, b)),
    "group_norm, bias": ("bias", lambda x, w, b: group_norm(x, 1, w, b)),
    "group_norm, weight": ("weight", lambda x, w, b: group_norm(x, 1, w, b)),
    "batch_norm, bias": ("bias", lambda x, w, b: batch_norm(x, None, None, w, b, True)),
    "rms_norm, weight": ("weight", lambda x, w, b: rms_norm(x, (FEATURES,), w)),
    "normlab layer_norm, bias": (
        "bias",
        lambda x, w, b: normlab_layer_norm(x, (FEATURES,), w, b),
    ),
}


@dataclass(frozen=True)
class Config:
    """Gradients by weight and bias, summed over many rows.

    With an upstream gradient of ones, the rows have alternating signs, so that x_hat is 1 or -1
    and every gradient looked at is the number of rows, or minus that.

    Attributes:
        norms: names of :data:`NORMS`.
        dtypes: of the input.
        parameter_dtype: of weight and bias; "same" is the input's.
        upstream: gradient by the output; "random" draws the rows, too.
        rows: how many.
        threads: what torch may use; only LayerNorm's result depends on it.
    """

    norms: tuple[str, ...] = tuple(NORMS)
    dtypes: tuple[StoredDtype, ...] = ("float32", "bfloat16", "float16")
    parameter_dtype: Literal["same", "float32"] = "same"
    upstream: Literal["ones", "random"] = "ones"
    rows: Count = 4096
    threads: tuple[Count, ...] = (1, 2)

    def __post_init__(self) -> None:
        check_settings(self)
        for name in self.norms:
            if name not in NORMS:
                raise ValueError(f"norms: got {name!r}; expected some of {'; '.join(NORMS)}")
        if self.rows < 1 or min(self.threads) < 1:
            raise ValueError("rows, threads: expected positive numbers")


@dataclass(frozen=True)
class Outcome:
    """One gradient.

    Attributes:
        norm: name.
        dtype: of the input.
        threads: of torch.
        gradient: absolute value of its first entry; right for ones is the number of rows.
        relative_error: norm of the error over the norm of the gradient in float64.
        predicted: first entry as :func:`~normlab.kernel_models.weight_gradient_buffers` gives it
            for LayerNorm; None for the other norms.
    """

    norm: str
    dtype: StoredDtype
    threads: int
    gradient: float
    relative_error: float
    predicted: float | None


@dataclass(frozen=True)
class Result:
    """All gradients, and torch's version.

    Attributes:
        outcomes: one for each norm, dtype and number of threads.
        torch: version.
    """

    outcomes: tuple[Outcome, ...]
    torch: str

    def of(self, norm: str, dtype: StoredDtype, threads: int = 1) -> Outcome:
        """One outcome."""
        wanted = (norm, dtype, threads)
        return next(o for o in self.outcomes if (o.norm, o.dtype, o.threads) == wanted)


def _inputs(norm: str, dtype: StoredDtype, config: Config) -> tuple[Tensor, Tensor]:
    if config.upstream == "random":
        x, dy = torch.randn(
            2, config.rows, FEATURES, generator=torch.Generator().manual_seed(0)
        ).to(getattr(torch, dtype))
        return x, dy
    x = torch.ones(config.rows, FEATURES, dtype=getattr(torch, dtype))
    if norm.startswith("batch_norm"):
        x[1::2] = -1  # a batch norm needs the spread inside a column
    else:
        x[:, 1::2] = -1
    return x, torch.ones_like(x)


def _parameter_gradient(norm: str, x: Tensor, dy: Tensor, dtype: torch.dtype) -> Tensor:
    which, call = NORMS[norm]
    weight, bias = (torch.full((FEATURES,), v, dtype=dtype, requires_grad=True) for v in (1.0, 0.0))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")
        y = call(x, weight, bias)
    (gradient,) = torch.autograd.grad(y, weight if which == "weight" else bias, dy)
    return gradient


def _predict(
    norm: str, x: Tensor, dy: Tensor, threads: int, dtype: StoredDtype, stored: StoredDtype
) -> float:
    _, mean, rstd = torch.native_layer_norm(x, (FEATURES,), None, None, 1e-5)
    flat = (t.detach().float().flatten().numpy() for t in (mean, rstd))
    buffers = weight_gradient_buffers(
        dy.float().numpy(),
        x.float().numpy(),
        *flat,
        threads=threads,
        dtype=dtype,
        fused=vector_code().fused,
    )
    return abs(float(add_buffers(buffers[NORMS[norm][0] == "bias"], stored)[0]))


def _outcome(norm: str, dtype: StoredDtype, config: Config, threads: int) -> Outcome:
    stored = dtype if config.parameter_dtype == "same" else config.parameter_dtype
    x, dy = _inputs(norm, dtype, config)
    exact = _parameter_gradient(norm, x.double(), dy.double(), torch.float64)
    with with_threads(threads):
        gradient = _parameter_gradient(norm, x, dy, getattr(torch, stored)).double()
    predicted = None
    if norm.startswith("layer_norm"):
        predicted = _predict(norm, x, dy, threads, dtype, stored)
    return Outcome(
        norm,
        dtype,
        threads,
        abs(gradient[0].item()),
        ((gradient - exact).norm() / exact.norm()).item(),
        predicted,
    )


def run(config: Config) -> Result:
    """Take every gradient with every number of threads."""
    outcomes = [
        _outcome(norm, dtype, config, threads)
        for norm in config.norms
        for dtype in config.dtypes
        for threads in config.threads
    ]
    return Result(tuple(outcomes), torch.__version__)
