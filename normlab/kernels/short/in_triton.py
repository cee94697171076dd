"""RMS norm in Triton, in the fewest lines: one program a row; `triton_programs` has more."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rms_norm(x, weight, y, rrms, n, eps, SIZE: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, SIZE)
    inside = i < n
    t = tl.load(x + row * n + i, mask=inside, other=0.0)
    w = tl.load(weight + i, mask=inside, other=0.0)
    r = 1.0 / tl.sqrt(tl.sum(t * t, 0) / n + eps)
    tl.store(rrms + row, r)
    tl.store(y + row * n + i, t * r * w, mask=inside)


@triton.jit
def rms_norm_backward(dy, x, weight, rrms, dx, dweight, n, SIZE: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, SIZE)
    inside = i < n
    g = tl.load(dy + row * n + i, mask=inside, other=0.0)
    w = tl.load(weight + i, mask=inside, other=0.0)
    r = tl.load(rrms + row)
    x_hat = tl.load(x + row * n + i, mask=inside, other=0.0) * r
    along = tl.sum(g * w * x_hat, 0) / n
    tl.store(dx + row * n + i, (g * w - along * x_hat) * r, mask=inside)
    tl.atomic_add(dweight + i, g * x_hat, mask=inside)
