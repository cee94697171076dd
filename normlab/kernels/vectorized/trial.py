"""One short loop, to see whether numba works here: whether it loads, compiles and computes."""

from __future__ import annotations

import numpy as np
import torch

from normlab.kernels.vectorized.compiling import compiled
from normlab.kernels.vectorized.vectors import LANES, fma, load, spread, store


@compiled
def add_one(x, y, n):
    f32 = np.float32(0)
    one = spread(np.float32(1))
    store(f32, y, 0, n, fma(load(f32, x, 0, n), one, one))


def try_compiler() -> None:
    """Run the loop.

    Raises:
        ArithmeticError: it gives something else than it should.
        Exception: whatever the compiler raises on this machine.
    """
    x = torch.arange(LANES, dtype=torch.float32)
    y = torch.zeros_like(x)
    add_one(x.data_ptr(), y.data_ptr(), LANES - 1)
    if not torch.equal(y[:-1], x[:-1] + 1) or y[-1]:
        raise ArithmeticError(
            f"a compiled loop gave {y.tolist()}; expected 1 to {LANES - 1}, and 0"
        )
