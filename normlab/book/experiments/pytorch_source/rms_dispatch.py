"""Which calls of torch's RMSNorm can take a fused kernel, and what do the others do?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from normlab.book.experiments.sweep import experiment
from normlab.book.kernel_models.rounding import StoredDtype


def compose(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm as torch composes it: up to float32, the weight before the cast back.

    Shape:
        x (*, H), weight (H,), of any floating dtypes.
    """
    wide = x.float()
    x_hat = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (x_hat * weight).to(x.dtype)


@contextmanager
def _every_warning() -> Iterator[list[warnings.WarningMessage]]:
    """Torch gives this warning once in a process, unless told otherwise."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield caught
    finally:
        torch.set_warn_always(before)


@experiment(
    dtype=("float32", "bfloat16", "float16"),
    weight_dtype=("bfloat16", "float32"),
    skip=lambda dtype, weight_dtype: weight_dtype not in (dtype, "float32"),
)
def rms_dispatch(dtype: StoredDtype, weight_dtype: StoredDtype) -> dict[str, Any]:
    """Call RMSNorm on this machine's CPU.

    Returns:
        warns: torch warns that the dtypes rule out the fused kernel.
        equals_composition: the output is bit for bit that of :func:`compose`.
        output_dtype: of the output.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 96, generator=generator).to(getattr(torch, dtype))
    weight = torch.randn(96, generator=generator).to(getattr(torch, weight_dtype))
    with _every_warning() as caught:
        y = rms_norm(x, (96,), weight, 1e-5)
    return {
        "warns": any("fused" in str(w.message) for w in caught),
        "equals_composition": torch.equal(y, compose(x, weight, 1e-5)),
        "output_dtype": str(y.dtype).removeprefix("torch."),
    }
