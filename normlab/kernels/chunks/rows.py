"""Layer norm and RMS norm in plain torch, a megabyte at a time.

Each operation of torch rounds its result. Where several follow each other on float32, they are done
in float64 as far as the cache makes that cheap: statistics and outputs, not gradients. Every
function also takes float64, which the tests of derivatives use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from normlab.kernels.chunks.native import differentiate_rows, normalize_rows
from normlab.kernels.chunks.pieces import Gradients, Needs, fine_dtype, pieces, wide_dtype

SHORT = 128  # values whose squares are summed in float32


def layer_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    features: int,
    eps: float,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Layer norm of rows; gives y (`out`, if there is one) and rows of mean, missed, rstd."""
    rows = x.reshape(-1, features).contiguous()
    wide, fine = wide_dtype(x.dtype), fine_dtype(x.dtype)
    w, b = (None if p is None else p.to(fine).reshape(-1) for p in (weight, bias))
    y = torch.empty_like(rows) if out is None else out.view(rows.shape)
    stats = rows.new_empty((3, len(rows)), dtype=wide)
    for piece in pieces(len(rows), features, fine):
        y[piece], found = normalize_rows(rows[piece].to(fine), w, b, eps, wide)
        for row, values in zip(stats, found, strict=True):
            row[piece] = values.flatten()
    return y.view(x.shape), stats


def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    features: int,
    eps: float,
    beside: Tensor | None = None,
) -> Gradients:
    """Gradients of :func:`layer_norm`, with `beside` added to dx; those not needed are None."""
    rows, dys = (t.reshape(-1, features) for t in (x, dy))
    wide = stats.dtype
    w = None if weight is None else weight.to(wide).reshape(-1)
    dx = _empty(rows) if needs[0] else None
    dweight, dbias = _sums(rows, needs)
    for piece in pieces(*rows.shape):
        mean, missed, rstd = (s[piece, None] for s in stats)
        x_hat = (rows[piece].to(wide) - mean).sub_(missed).mul_(rstd)
        g = dys[piece].to(wide)
        if dx is not None:
            here = differentiate_rows(g if w is None else g * w, x_hat)
            if dx.dtype == wide:
                torch.mul(here, rstd, out=dx[piece])
            else:
                dx[piece] = here.mul_(rstd)
            if beside is not None:
                dx[piece] += beside.reshape(-1, features)[piece]
        if dbias is not None:
            dbias += g.sum(0)
        if dweight is not None:
            dweight += x_hat.mul_(g).sum(0)
    return None if dx is None else dx.view(x.shape), dweight, dbias


def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: None,
    features: int,
    eps: float,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """RMS norm of rows; gives y (`out`, if there is one) and rstd in a tensor of one row."""
    rows = x.reshape(-1, features)
    wide, fine = wide_dtype(x.dtype), fine_dtype(x.dtype)
    w = None if weight is None else weight.to(fine).reshape(-1)
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device) if out is None else out
    stats = rows.new_empty((1, len(rows)), dtype=wide)
    for piece in pieces(len(rows), features, fine):
        xs = rows[piece].to(wide)
        rstd = _mean_square(xs).add_(eps).rsqrt_().to(fine)
        stats[0, piece] = rstd
        if y.dtype != wide:
            ys = xs.mul_(rstd[:, None])
            y[piece] = ys if w is None else ys.mul_(w)
        else:  # the factor is rounded once, and so the output twice
            factor = rstd[:, None] if w is None else rstd[:, None] * w
            torch.mul(xs, factor.to(wide), out=y[piece])
    return y.view(x.shape), stats


def _mean_square(rows: Tensor) -> Tensor:
    """Of each row, in float64; sums in float32 are of short parts of it, as they lose digits."""
    count, n = rows.shape
    full = n - n % SHORT
    parts = torch.linalg.vector_norm(rows[:, :full].view(count, -1, SHORT), 2, 2)
    total = parts.double().square_().sum(1)
    if full < n:
        total += torch.linalg.vector_norm(rows[:, full:], 2, 1, dtype=torch.float64).square_()
    return total.div_(n)


def rms_norm_backward(
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    features: int,
    eps: float,
    beside: Tensor | None = None,
) -> Gradients:
    """Gradients of :func:`rms_norm`, with `beside` added to dx; those not needed are None."""
    rows, dys = (t.reshape(-1, features) for t in (x, dy))
    wide = stats.dtype
    w = None if weight is None else weight.to(wide).reshape(-1)
    dx = _empty(rows) if needs[0] else None
    dweight, _ = _sums(rows, needs)
    ones = torch.ones(features, dtype=wide, device=x.device) if w is None else w
    for piece in pieces(*rows.shape):
        rstd = stats[0, piece, None]
        x_hat = rows[piece].to(wide) * rstd
        g = dys[piece].to(wide)
        product = g * x_hat
        if dweight is not None:
            dweight += product.sum(0)
        if dx is not None:
            if features < SHORT:  # of few values, most cancels below
                projection = torch.mv(product.double(), ones.double()).to(wide).div_(features)
            else:
                projection = torch.mv(product, ones).div_(features)
            out = dx[piece] if dx.dtype == wide else None
            h = torch.mul(g, rstd, out=out)
            if w is not None:
                h.mul_(w)
            h.sub_(x_hat.mul_(projection[:, None]).mul_(rstd))
            if out is None:
                dx[piece] = h
            if beside is not None:
                dx[piece] += beside.reshape(-1, features)[piece]
    return None if dx is None else dx.view(x.shape), dweight, None


def _add(
    norm: Callable[..., tuple[Tensor, Tensor]],
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    features: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum, its norm, and the statistics of the norm."""
    rows, others = (t.reshape(-1, features) for t in (x, residual))
    total, y = _empty(rows), _empty(rows)
    stats = []
    for piece in pieces(*rows.shape):
        here = torch.add(rows[piece], others[piece], out=total[piece])
        stats.append(norm(here, weight, bias, features, eps, out=y[piece])[1])
    return total.view(x.shape), y.view(x.shape), torch.cat(stats, 1)


add_layer_norm = functools.partial(_add, layer_norm)
add_rms_norm = functools.partial(_add, rms_norm)


def _empty(rows: Tensor) -> Tensor:
    return torch.empty_like(rows, memory_format=torch.contiguous_format)


def _sums(rows: Tensor, needs: Needs) -> list[Tensor | None]:
    """Zeros in float64 for the gradients of weight and bias, as far as they are needed.

    One sum in the dtype of the statistics would lose a digit over 65,536 rows.
    """
    return [rows.new_zeros(rows.shape[1], dtype=torch.float64) if n else None for n in needs[1:]]
