"""Noise of one unit in the last place in every float32 product: it stands for another processor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Products of matrices and vectors, convolutions, and attention; forward and backward of all layers
# come down to these.
_PRODUCTS = (
    *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"),
    *("convolution", "convolution_backward"),
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)
_PERIOD = 2**20
# Seed -> what holds the kernels: torch forgets those of a library that is collected.
_installed: dict[int, torch.library.Library] = {}


def add_noise(seed: int) -> None:
    """Multiply each entry of every float32 product on the CPU by 1 + 2⁻²³ or 1 - 2⁻²³ from now on.

    Another processor adds up the terms of a product in another order, so that its last bits differ.
    The signs are random by `seed` and by the place of an entry in the output: the same call gives
    the same bits again, as on a processor; a row alone and in a batch need not.

    Raises:
        RuntimeError: the process has the noise of another seed.
    """
    if seed in _installed:
        return
    if _installed:
        raise RuntimeError("the process has noise; start another one for another seed")
    generator = torch.Generator().manual_seed(seed)
    signs = 2.0 * torch.randint(2, (_PERIOD,), generator=generator) - 1.0
    factors = 1.0 + signs * torch.finfo(torch.float32).eps
    library = torch.library.Library("aten", "IMPL")
    _installed[seed] = library
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        for name in _PRODUCTS:
            library.impl(name, _noisy(name, factors), "CPU", with_keyset=True)


def _noisy(name: str, factors: Tensor) -> Callable[..., Any]:
    kernel = torch.library.get_kernel(f"aten::{name}", "CPU")

    def product(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        result = kernel.call_boxed(keyset, *args, **kwargs)
        for out in result if isinstance(result, tuple | list) else (result,):
            if isinstance(out, Tensor) and out.dtype == torch.float32:
                size = out.numel()
                tiled = factors if size <= _PERIOD else factors.repeat(size // _PERIOD + 1)
                out.mul_(tiled[:size].view(out.shape))
        return result

    return product
