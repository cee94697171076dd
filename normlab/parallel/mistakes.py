"""Known mistakes of norms over several processes: a sentence, and the values that each gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from normlab.norms import NORMS
from normlab.parallel.division import MOMENTUM, Division, Values, one_process, scalar
from normlab.parallel.moments import merge_moments

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
    "heads_together": (
        "the heads of a process are normalized together. Normalize each head by itself"
    ),
    "each_head_by_itself": (
        "each head is normalized by itself. Take the mean square over all heads of all processes"
    ),
    "weight_misplaced": (
        "it is multiplied by weights of other heads. Give each process the weights of its own"
    ),
    "averaged": "it is averaged over the processes. The gradient of a shared weight is the sum",
    "partial": (
        "it is only that of this process's share. Sum it over the processes, as "
        "reduce_norm_gradients does, before the step"
    ),
    "rounded_sum": (
        "it is summed in bfloat16, which keeps 8 bits. Sum in float32, whatever the activations are"
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


class _Parts(NamedTuple):
    """Moments of each share, (R, \\*) with size 1 along what is reduced."""

    counts: Tensor
    means: Tensor
    vars: Tensor


def _measure(case: Division) -> _Parts:
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


def _normalize(case: Division, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    y = (case.x - mean) * torch.rsqrt(var + eps) * case.weight
    return y if case.bias is None else y + case.bias


def _expand(case: Division, parts: Tensor) -> Tensor:
    """One entry for each cell of the divided axis, from one for each share."""
    pairs = zip(parts, case.shards, strict=True)
    return torch.cat([p.repeat_interleave(n, case.axis) for p, n in pairs], case.axis)


def wrong_outputs(case: Division, eps: float) -> Iterator[tuple[str, Tensor]]:
    """Mistake, and the whole output that it gives."""
    yield from _wrong_heads(case, eps)
    if case.axis == 0 and case.over != "samples":
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


def _wrong_heads(case: Division, eps: float) -> Iterator[tuple[str, Tensor]]:
    """The two QK norms taken for each other, and weights of other heads."""
    if case.heads is None:
        return
    x = case.arrange(case.x)  # (samples, heads, tokens, features)
    together = case.axis == 0
    shares = x.split([n // case.unit for n in case.shards], 1) if together else (x,)
    found = []
    for share in shares:
        axes = (1, 3) if together else (3,)
        mean = share.mean(axes, keepdim=True) * NORMS[case.like].centered
        var = (share - mean).square().mean(axes, keepdim=True)
        found.append((share - mean) * torch.rsqrt(var + eps))
    y = case.collect(torch.cat(found, 1)) * case.weight
    mistake = "heads_together" if together else "each_head_by_itself"
    yield mistake, y if case.bias is None else y + case.bias
    if not together:
        first = torch.cat([torch.arange(n) for n in case.shards])
        y = one_process(case, eps, affine=False).y * case.weight[first]
        yield "weight_misplaced", y if case.bias is None else y + case.bias[first]


def wrong_input_gradients(
    case: Division, right: Tensor, eps: float
) -> Iterator[tuple[str, Tensor]]:
    """Mistake, and the whole input gradient that it gives where the output is right."""
    if case.axis == 0 and case.over != "samples":
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


def _own_gradient(case: Division, rank: int, eps: float, once: bool) -> Tensor:
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
    return torch.autograd.grad(scalar(y, share.dy * share.weight), own)[0]


def wrong_running(case: Division, rank: int, right: Values) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Mistake, and the running mean and variance that it gives on one process."""
    assert right.running_mean is not None and right.running_var is not None
    counts, means, spreads = _measure(case)
    n, total = int(counts[rank]), int(counts.sum())
    mean, var = means[rank, 0], spreads[rank, 0]
    kept = 1 - MOMENTUM  # of the first running variance, which is 1
    biased = (right.running_var - kept) * ((total - 1) / total)
    if n > 1:
        bessel = n / (n - 1)
        yield "running_local", MOMENTUM * mean, kept + MOMENTUM * var * bessel
        yield "running_local_count", right.running_mean, kept + biased * bessel
    yield "running_var_biased", right.running_mean, kept + biased


def part_of_weight_gradient(case: Division, rank: int, eps: float) -> tuple[Tensor, Tensor]:
    """What one process's own samples or tokens give to the gradients of weight and bias."""
    x_hat = one_process(case, eps, affine=False).y
    dy, x_hat = (t.split(case.shards, 0)[rank] for t in (case.dy, x_hat))
    return (dy * x_hat).sum(0), dy.sum(0)


def wrong_sums(
    case: Division, expected: Tensor, eps: float, name: str
) -> Iterator[tuple[str, Tensor]]:
    """Mistake, and the gradient of "weight" or "bias" that it gives where the processes sum it."""
    size = len(case.shards)
    yield "averaged", expected / size
    yield "reduced_twice", size * expected
    parts = [part_of_weight_gradient(case, r, eps)[name == "bias"] for r in range(size)]
    first, *others = (part.bfloat16() for part in parts)
    yield "rounded_sum", sum(others, first).double()
