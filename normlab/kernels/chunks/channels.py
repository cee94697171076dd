"""Batch, group and instance norm in plain torch, a megabyte at a time.

Statistics are a tensor of four rows: the mean, what its rounding missed, rstd and the variance of
each channel (batch norm) or of each group of each sample. Float32 input is centered and scaled in
float64, so that its output is rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from normlab.kernels.chunks.native import normalize_rows
from normlab.kernels.chunks.pieces import CHUNK, Gradients, Needs, fine_dtype, pieces, wide_dtype

_FEW = 32  # values that are summed in float32
_SMALL = 1 << 14  # elements; converting fewer costs nothing


def _channels(x: Tensor) -> Tensor:
    """x as (N, C, positions), a view in either layout."""
    return x.flatten(2) if x.dim() > 2 else x.unsqueeze(2)


def _dense(x: Tensor) -> Tensor:
    """x, or a copy of it in the order of its axes if its layout is neither of the two."""
    return x if x.movedim(1, -1).is_contiguous() else x.contiguous()


def _column(p: Tensor | None, piece: slice, wide: torch.dtype) -> Tensor | None:
    return None if p is None else p[piece].to(wide)[:, None]


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x * weight + bias in place; two operations, since one by channel is slow."""
    if weight is not None:
        x.mul_(weight)
    if bias is not None:
        x.add_(bias)
    return x


def _mean(x: Tensor) -> Tensor:
    """Mean over samples and positions of (N, C, P), one axis at a time, which is faster."""
    return x.sum(2).sum(0).div_(x.shape[0] * x.shape[2])[:, None]


def _rows(x: Tensor) -> Tensor | None:
    """x as (positions, C), a view, if the channels of a position lie side by side."""
    moved = x.movedim(1, -1)
    if not moved.is_contiguous() or (x.dim() > 2 and x.is_contiguous()):
        return None
    return moved.view(-1, x.shape[1])


def _sum(x: Tensor, dim: int, *, is_small: bool) -> Tensor:
    """Sum in float64 along an axis; if x is not small, of sums of a few values in float32."""
    count = x.shape[dim]
    few = count // _FEW
    if is_small or x.dtype == torch.float64:
        return x.double().sum(dim)
    if few <= 1:
        return x.sum(dim).double()
    # values that lie apart are summed, so that those side by side are vectors
    start = x.narrow(dim, 0, few * _FEW).unflatten(dim, (_FEW, few))
    total = start.sum(dim).double().sum(dim)
    rest = count - few * _FEW
    return total + x.narrow(dim, few * _FEW, rest).double().sum(dim) if rest else total


def _batch_norm_of_rows(
    rows: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, y: Tensor
) -> Tensor:
    """Write the output to y and give the statistics; memory is read twice."""
    wide = wide_dtype(rows.dtype)
    shift = rows[:32].to(wide).mean(0)
    while True:
        off, second = rows.new_zeros((2, rows.shape[1]), dtype=torch.float64)
        for piece in pieces(*rows.shape):
            t = rows[piece].to(wide) - shift
            off += t.sum(0)
            second += t.square_().sum(0)
        off /= len(rows)
        var = (second / len(rows) - off.square()).clamp_(min=0)
        exact = shift.double() + off
        # mostly, the mean of the first rows is near enough for the squares around it; once more
        # where it is not, and then it is
        if torch.equal(shift, exact.to(wide)) or not bool((off.square() > 4 * var).any()):
            break
        shift = exact.to(wide)
    mean, rstd = exact.to(wide), (var + eps).rsqrt()
    stats = torch.stack([mean, (exact - mean).to(wide), rstd.to(wide), var.to(wide)])
    fine = fine_dtype(rows.dtype)
    w, b = (None if p is None else p.to(fine) for p in (weight, bias))
    factor = rstd.to(fine) if w is None else rstd.to(fine) * w
    for piece in pieces(len(rows), rows.shape[1], fine):
        if fine == torch.float64:
            t = rows[piece].to(fine).sub(exact)
        else:
            t = (rows[piece].to(fine) - mean).sub_(stats[1])
        y[piece] = _affine(t, factor, b)
    return stats


def _batch_norm_of_rows_backward(
    dy: Tensor, x: Tensor, stats: Tensor, weight: Tensor | None, dx: Tensor
) -> Tensor:
    """Write the gradient to dx and give those of weight and bias."""
    wide = stats.dtype
    mean, missed, rstd, _ = stats
    sums = x.new_zeros((2, x.shape[1]), dtype=torch.float64)
    is_small = x.numel() < _SMALL
    for piece in pieces(*x.shape):
        g = dy[piece].to(wide)
        product = (x[piece].to(wide) - mean).sub_(missed).mul_(rstd).mul_(g)
        sums[0] += _sum(product, 0, is_small=is_small)
        sums[1] += _sum(g, 0, is_small=is_small)
    factor = rstd.double() if weight is None else rstd.double() * weight
    product, total = (sums * (factor / -len(x))).to(wide)
    factor = factor.to(wide)
    for piece in pieces(*x.shape):
        h = (x[piece].to(wide) - mean).sub_(missed).mul_(rstd).mul_(product).add_(total)
        dx[piece] = h.add_(dy[piece].to(wide) * factor)
    return sums


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Batch norm with the statistics of the batch, some channels at a time."""
    x = _dense(x)
    y = torch.empty_like(x)
    rows = _rows(x)
    if rows is not None and (out := _rows(y)) is not None:
        return y, _batch_norm_of_rows(rows, weight, bias, eps, out)
    xs, ys = _channels(x), _channels(y)
    wide = wide_dtype(x.dtype)
    fine = fine_dtype(x.dtype)
    stats = x.new_empty((4, x.shape[1]), dtype=wide)
    count = x.numel() // x.shape[1]
    for piece in pieces(x.shape[1], count, fine):
        part = xs[:, piece].to(fine)
        mean = _mean(part)
        t = torch.sub(part, mean, out=None if fine == x.dtype else part)
        first = mean.to(wide)
        missed = mean - first
        if fine == torch.float64:
            var = torch.linalg.vector_norm(t, 2, 2).square_().sum(0).div_(count)[:, None]
        else:
            missed = _mean(t)
            t.sub_(missed)
            var = _mean(t.square())
        rstd = torch.rsqrt(var + eps)
        w = _column(weight, piece, fine)
        ys[:, piece] = _affine(t, rstd if w is None else rstd * w, _column(bias, piece, fine))
        stats[:, piece] = torch.cat([first, missed, rstd, var], 1).t()
    return y, stats


def batch_norm_backward(
    dy: Tensor, x: Tensor, stats: Tensor, weight: Tensor | None, needs: Needs, eps: float
) -> Gradients:
    """Gradients of :func:`batch_norm`."""
    x = _dense(x)
    rows = _rows(x)
    if rows is not None:
        dx = torch.empty_like(x)
        dys = dy.movedim(1, -1).reshape(rows.shape)
        dxs = dx.movedim(1, -1).view(rows.shape)
        dweight, dbias = _batch_norm_of_rows_backward(dys, rows, stats, weight, dxs)
        return dx, dweight if needs[1] else None, dbias if needs[2] else None
    return _by_channel(dy, x, stats, weight, needs, through_statistics=True)


def scale(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, stats: Tensor
) -> tuple[Tensor, Tensor]:
    """Normalize each channel with given statistics, as in evaluation."""
    x = _dense(x)
    y = torch.empty_like(x)
    xs, ys = _channels(x), _channels(y)
    wide = stats.dtype
    mean, _, rstd, _ = stats[:, :, None]
    w, b = (_column(p, slice(None), wide) for p in (weight, bias))
    for piece in pieces(x.shape[0], x.numel() // x.shape[0]):
        t = (xs[piece].to(wide) - mean).mul_(rstd)
        ys[piece] = _affine(t, w, b)
    return y, stats


def scale_backward(
    dy: Tensor, x: Tensor, stats: Tensor, weight: Tensor | None, needs: Needs, _: Tensor
) -> Gradients:
    """Gradients of :func:`scale`; none for the statistics."""
    return _by_channel(dy, x, stats, weight, needs, through_statistics=False)


def _by_channel(
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    *,
    through_statistics: bool,
) -> Gradients:
    wide = stats.dtype
    x = _dense(x)
    dx = torch.empty_like(x)
    xs, dys, dxs = _channels(x), _channels(dy), _channels(dx)
    count = x.numel() // x.shape[1]
    sums = x.new_empty((2, x.shape[1]), dtype=torch.float64)
    for piece in pieces(x.shape[1], count):
        mean, missed, rstd, _ = stats[:, piece, None]
        x_hat = (xs[:, piece].to(wide) - mean).sub_(missed).mul_(rstd)
        g = dys[:, piece].to(wide)
        product, total = (
            _sum(t, 0, is_small=x.numel() < _SMALL).sum(1, keepdim=True) for t in (g * x_hat, g)
        )
        sums[0, piece], sums[1, piece] = product[:, 0], total[:, 0]
        w = _column(weight, piece, torch.float64)
        factor = rstd.double() if w is None else rstd * w
        h = g * factor.to(wide)
        if through_statistics:
            x_hat.mul_((product * factor / -count).to(wide))
            h.add_(x_hat.sub_((total * factor / count).to(wide)))
        dxs[:, piece] = h
    return dx, sums[0] if needs[1] else None, sums[1] if needs[2] else None


def _tiles(batch: int, groups: int, size: int, dtype: torch.dtype) -> Iterator[tuple[slice, slice]]:
    """Samples and groups whose values fit the cache together."""
    if groups * size * dtype.itemsize <= 4 * CHUNK:
        for some in pieces(batch, groups * size, dtype):
            yield some, slice(0, groups)
    else:
        for i in range(batch):
            for some in pieces(groups, size, dtype):
                yield slice(i, i + 1), some


def _grouped(x: Tensor, groups: int) -> Tensor:
    """x as (N, G, channels of a group, positions), a view in either layout."""
    return _channels(x).unflatten(1, (groups, -1))


def _by_group(p: Tensor | None, groups: int, wide: torch.dtype) -> Tensor | None:
    return None if p is None else p.to(wide).view(groups, -1, 1)


def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor]:
    """Group norm; instance norm has a group for each channel."""
    x = _dense(x)
    y = torch.empty_like(x)
    xs, ys = _grouped(x, groups), _grouped(y, groups)
    wide, fine = wide_dtype(x.dtype), fine_dtype(x.dtype)
    size = xs.shape[2] * xs.shape[3]
    stats = x.new_empty((4, x.shape[0], groups), dtype=wide)
    w, b = (_by_group(p, groups, fine) for p in (weight, bias))
    for some, those in _tiles(x.shape[0], groups, size, fine):
        part = xs[some, those]
        rows = part.to(fine).reshape(-1, size)
        t, (mean, missed, rstd) = normalize_rows(rows, None, None, eps, wide)
        t = t.view(part.shape)
        ys[some, those] = _affine(
            t, None if w is None else w[those], None if b is None else b[those]
        )
        var = rstd.double().pow(-2) - eps
        for row, values in zip(stats, (mean, missed, rstd, var), strict=True):
            row[some, those] = values.view(part.shape[:2]).to(wide)
    return y, stats.view(4, -1)


def group_norm_backward(
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    groups: int,
    eps: float,
) -> Gradients:
    """Gradients of :func:`group_norm`."""
    wide = stats.dtype
    x = _dense(x)
    dx = torch.empty_like(x)
    xs, dys, dxs = (_grouped(t, groups) for t in (x, dy, dx))
    size = xs.shape[2] * xs.shape[3]
    each = stats.view(4, x.shape[0], groups)
    w = _by_group(weight, groups, torch.float64)
    sums = x.new_zeros((2, groups, xs.shape[2]), dtype=torch.float64)
    for some, those in _tiles(x.shape[0], groups, size, wide):
        mean, missed, rstd, var = each[:, some, those].reshape(4, -1, 1)
        part = xs[some, those]
        x_hat = (part.to(wide).reshape(-1, size) - mean).sub_(missed).mul_(rstd).view(part.shape)
        g = dys[some, those].to(wide)
        # by the size of a sample, whose gradient must not depend on how many others there are
        product, total = (
            _sum(t, 3, is_small=t.shape[3] < 2 * _FEW)[..., None] for t in (x_hat * g, g)
        )
        sums[0, those] += product[..., 0].sum(0)
        sums[1, those] += total[..., 0].sum(0)
        # an rstd of the rounded variance is nearer than the rounded rstd
        factor = (var.double() + eps).rsqrt().view(*part.shape[:2], 1, 1)
        if w is not None:
            factor = factor * w[those]
        # of the group, as each of its values has a share in both
        product, total = ((t * factor).sum(2, keepdim=True) / -size for t in (product, total))
        x_hat.mul_(product.to(wide)).add_(total.to(wide))
        dxs[some, those] = x_hat.add_(g * factor.to(wide))
    dweight, dbias = sums.view(2, -1)
    return dx, dweight if needs[1] else None, dbias if needs[2] else None
