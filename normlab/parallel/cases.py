"""What a norm over several processes is compared with: one process, and known mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from normlab import layers
from normlab.norms import NORMS
from normlab.parallel.moments import merge_moments

Divided = Literal["samples", "features", "tokens"]
MOMENTUM = 0.1

# mistake -> what is wrong and what would be right; the keys are `Failure.mistake`
SENTENCES = {
    "local_statistics": (
        "each process normalizes with the statistics of its own share. Merge count, mean and "
        "squared deviations of all processes"
    ),
    "count_ignored": (
        "the shares are averaged as if they were equal. Weight each by its count, or sum "
        "and divide by the sum of the counts"
    ),
    "spread_missing": (
        "the variances are averaged, which leaves out how far the means of the shares differ. "
        "Add n_r (mean_r - mean)^2 for each share"
    ),
    "cancellation": (
        "exact around zero and wrong around 1e4 in float32: the mean of squares minus the square "
        "of the mean cancels. Send squared deviations from each share's own mean"
    ),
    "identity_backward": (
        "the gradient of a statistic is only that of this process's outputs, though all processes "
        "use it. The backward of an all-reduce is an all-reduce"
    ),
    "reduced_twice": (
        "it is multiplied by the number of processes: summed over them once more than needed"
    ),
    "detached_statistics": (
        "the statistics are taken as constants. Let the gradient pass through the collective"
    ),
    "local_count": (
        "the mean in the backward divides by this process's count. Divide by the count of all"
    ),
    "averaged": "it is averaged over the processes. The gradient of a shared weight is the sum",
    "partial": (
        "it is only that of this process's share. Sum it over the processes, as "
        "reduce_norm_gradients does, before the step"
    ),
    "running_local": "the running statistics follow this process's share, not the whole batch",
    "running_local_count": (
        "Bessel's correction of the running variance uses this process's count, not that of all"
    ),
    "running_var_biased": "the running variance is not Bessel-corrected",
    "sends_in_evaluation": "in evaluation it waits for other processes; nothing has to be sent",
    "raises": "it raises for a share that a norm over several processes has to take",
    "skips_collective": (
        "a process left out a collective that the others wait in; each has to join, also one "
        "whose share is empty"
    ),
}


@dataclass(frozen=True)
class Case:
    """A whole, and how it is divided.

    Attributes:
        like: key of :data:`normlab.norms.NORMS`.
        over: what is divided.
        shards: how much of it each process has.
        x: the whole input, (samples or tokens, features).
        weight: (features,).
        bias: the same, or None.
        dy: upstream gradient.
        offset: mean of x; 0 for float64 cases.
    """

    like: str
    over: Divided
    shards: tuple[int, ...]
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    dy: Tensor
    offset: float = 0.0

    @property
    def axis(self) -> int:
        """The divided axis of x."""
        return 1 if self.over == "features" else 0

    def share(self, rank: int) -> Case:
        """What one process has."""

        def cut(t: Any) -> Any:
            divided = t is not None and (t.dim() > 1 or self.over == "features")
            return t.split(self.shards, min(self.axis, t.dim() - 1))[rank] if divided else t

        own = {name: cut(getattr(self, name)) for name in ("x", "weight", "bias", "dy")}
        return replace(self, shards=(self.shards[rank],), **own)

    def __str__(self) -> str:
        *first, last = map(str, self.shards)
        return f"{', '.join(first)}{' and ' if first else ''}{last} {self.over}"


class Values(NamedTuple):
    """What a norm gives for a case.

    Attributes:
        y: output.
        dx: input gradient.
        dweight: weight gradient, or None.
        dbias: bias gradient, or None.
        running_mean: after the case, or None.
        running_var: after the case, or None.
    """

    y: Tensor
    dx: Tensor
    dweight: Tensor | None
    dbias: Tensor | None
    running_mean: Tensor | None = None
    running_var: Tensor | None = None


def make_cases(like: str, over: Divided, world_size: int) -> Iterator[Case]:
    """Equal, uneven, empty and smallest shares in float64, and a large mean in float32.

    Args:
        like: key of :data:`normlab.norms.NORMS`.
        over: what is divided.
        world_size: number of processes.
    """
    uneven = tuple((5, 3, 4, 2)[r % 4] for r in range(world_size))
    empty = (*(7,) * (world_size - 1), 0)
    for seed, shards in enumerate(((4,) * world_size, uneven, empty, (1,) * world_size)):
        if world_size > 1 or sum(shards) > 1:
            yield _make_case(like, over, shards, seed)
    yield _make_case(like, over, tuple(8 * n for n in uneven), 4, offset=1e4)


def _make_case(
    like: str, over: Divided, shards: tuple[int, ...], seed: int, offset: float = 0.0
) -> Case:
    g = torch.Generator().manual_seed(seed)
    shape = (3, sum(shards)) if over == "features" else (sum(shards), 6)
    dtype = torch.float32 if offset else torch.float64
    # each cell has a mean of its own, so that shares differ in mean and spread
    x = torch.randn(shape, generator=g, dtype=torch.float64)
    x = x + 2 * torch.randn(shape, generator=g, dtype=torch.float64) + offset
    dy = torch.randn(shape, generator=g, dtype=torch.float64)
    weight, bias = torch.randn(2, shape[1], generator=g, dtype=torch.float64)
    x, weight, bias, dy = (t.to(dtype) for t in (x, 1.5 + weight / 2, bias, dy))
    return Case(like, over, shards, x, weight, bias if NORMS[like].has_bias else None, dy, offset)


def one_process(
    case: Case, eps: float | None, *, affine: bool = True, torchs: bool = False
) -> Values:
    """What one process finds for the whole: layers of :mod:`normlab.layers`.

    Args:
        case: the whole.
        eps: of the norm.
        affine: with weight and bias.
        torchs: by torch's function instead.
    """
    record = NORMS[case.like]
    x = case.x.clone().requires_grad_()
    weight = case.weight.clone().requires_grad_() if affine else None
    bias = case.bias.clone().requires_grad_() if affine and case.bias is not None else None
    size = case.x.shape[1]
    mean, var = x.new_zeros(size), x.new_ones(size)
    values = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var, "eps": eps}
    arguments = record.arguments(normalized_shape=(size,), momentum=MOMENTUM, **values)
    function = record.torch_function() if torchs else getattr(layers, case.like)
    assert function is not None
    y = function(x, *arguments)
    leaves = [t for t in (x, weight, bias) if t is not None]
    dx, *rest = torch.autograd.grad(y, leaves, case.dy)
    dweight, dbias, *_ = (*rest, None, None)
    running = (mean, var) if record.has_running else (None, None)
    return Values(y.detach(), dx, dweight, dbias, *running)


def double(case: Case) -> Case:
    """The same case in float64."""
    bias = None if case.bias is None else case.bias.double()
    x, weight, dy = case.x.double(), case.weight.double(), case.dy.double()
    return replace(case, x=x, weight=weight, bias=bias, dy=dy)


class _Parts(NamedTuple):
    """Moments of each share, (R, \\*) with size 1 along what is reduced."""

    counts: Tensor
    means: Tensor
    vars: Tensor


def _measure(case: Case) -> _Parts:
    axis = case.axis
    centered = NORMS[case.like].centered
    means, spreads = [], []
    for part in case.x.split(case.shards, axis):
        some = max(1, part.shape[axis])
        mean = part.sum(axis, keepdim=True) / some * centered
        means.append(mean)
        spreads.append((part - mean).square().sum(axis, keepdim=True) / some)
    counts = case.x.new_tensor(case.shards)
    return _Parts(counts, torch.stack(means), torch.stack(spreads))


def _normalize(case: Case, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    y = (case.x - mean) * torch.rsqrt(var + eps) * case.weight
    return y if case.bias is None else y + case.bias


def _expand(case: Case, parts: Tensor) -> Tensor:
    """One entry for each cell of the divided axis, from one for each share."""
    return torch.cat(
        [p.expand(*_sized(p, case.axis, n)) for p, n in zip(parts, case.shards, strict=True)],
        case.axis,
    )


def _sized(p: Tensor, axis: int, n: int) -> list[int]:
    return [n if d == axis else size for d, size in enumerate(p.shape)]


def wrong_outputs(case: Case, eps: float) -> Iterator[tuple[str, Tensor]]:
    """Mistake, and the whole output that it gives."""
    if case.over == "tokens":
        return
    counts, means, spreads = _measure(case)
    local = _normalize(case, _expand(case, means), _expand(case, spreads), eps)
    yield "local_statistics", local
    equal = torch.ones_like(counts)
    _, mean, var = merge_moments(equal, means, spreads)
    yield "count_ignored", _normalize(case, mean, var, eps)
    n = counts.reshape(-1, 1, 1)
    _, mean, _ = merge_moments(counts, means, spreads)
    yield "spread_missing", _normalize(case, mean, (n * spreads).sum(0) / counts.sum(), eps)


def wrong_input_gradients(case: Case, right: Tensor, eps: float) -> Iterator[tuple[str, Tensor]]:
    """Mistake, and the whole input gradient that it gives where the output is right."""
    if case.over == "tokens":
        return
    counts, means, spreads = _measure(case)
    _, _, var = merge_moments(counts, means, spreads * counts.reshape(-1, 1, 1))
    direct = case.dy * case.weight * torch.rsqrt(var + eps)
    for once in (True, False):
        own = [_own_gradient(case, rank, eps, once) for rank in range(len(case.shards))]
        yield "identity_backward", torch.cat(own, case.axis)
    yield "detached_statistics", direct
    yield "reduced_twice", direct + len(case.shards) * (right - direct)
    factors = counts.sum() / counts.clamp(min=1)
    local = _expand(case, factors.reshape(-1, 1, 1))
    yield "local_count", direct + local * (right - direct)


def _own_gradient(case: Case, rank: int, eps: float, once: bool) -> Tensor:
    """Gradient of one process's outputs by its own cells, through the statistics of all.

    Where mean and deviations are sent one after the other, the deviations of the other processes
    do not follow the mean; where they are sent at once, they do.
    """
    parts = list(case.x.split(case.shards, case.axis))
    own = parts[rank] = parts[rank].clone().requires_grad_()
    x = torch.cat(parts, case.axis)
    size = max(1, x.shape[case.axis])
    mean = x.sum(case.axis, keepdim=True) / size * NORMS[case.like].centered
    deviations = [p - (mean if once or p is own else mean.detach()) for p in parts]
    var = torch.cat(deviations, case.axis).square().sum(case.axis, keepdim=True) / size
    y = deviations[rank] * torch.rsqrt(var + eps)
    share = case.share(rank)
    return torch.autograd.grad(y, own, share.dy * share.weight)[0]


def wrong_running(case: Case, rank: int, right: Values) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Mistake, and the running mean and variance that it gives on one process."""
    assert right.running_mean is not None and right.running_var is not None
    counts, means, spreads = _measure(case)
    n, total = int(counts[rank]), int(counts.sum())
    mean, var = means[rank, 0], spreads[rank, 0]
    if n > 1:
        old = torch.ones_like(var)
        yield (
            "running_local",
            MOMENTUM * mean,
            (1 - MOMENTUM) * old + MOMENTUM * var * n / (n - 1),
        )
    new = right.running_var - (1 - MOMENTUM)
    if n > 1:
        wrong = new * ((total - 1) / total) * (n / (n - 1))
        yield "running_local_count", right.running_mean, wrong + (1 - MOMENTUM)
    biased = new * ((total - 1) / total) + (1 - MOMENTUM)
    yield "running_var_biased", right.running_mean, biased


def part_of_weight_gradient(case: Case, rank: int, eps: float) -> tuple[Tensor, Tensor]:
    """What one process's own samples or tokens give to the gradients of weight and bias."""
    x_hat = one_process(case, eps, affine=False).y
    dy, x_hat = (t.split(case.shards, 0)[rank] for t in (case.dy, x_hat))
    return (dy * x_hat).sum(0), dy.sum(0)
