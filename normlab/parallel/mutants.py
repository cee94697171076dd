"""Wrong norms over several processes, for the tests of the checks and for the book."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from normlab.layers import LayerNorm, RMSNorm
from normlab.parallel.collectives import group_size, sum_over_group
from normlab.parallel.division import Divided
from normlab.parallel.gradients import reduce_norm_gradients


@dataclass(frozen=True)
class ParallelMutant:
    """Right but for one mistake.

    Attributes:
        like: what it claims to be.
        over: what is divided.
        mistake: `Failure.mistake` that a report must name.
        layer: the wrong function or class.
        reduce: what its training step does to the gradients.
        source: where it was met, or "constructed".
    """

    like: str
    over: Divided
    mistake: str
    layer: Any
    reduce: Any = reduce_norm_gradients
    source: str = "constructed"


def _sum(x: Tensor, mistake: str) -> Tensor:
    """An all-reduce, right or with one of the wrong backwards."""
    total = sum_over_group(x)
    if mistake == "identity_backward":
        return total.detach() + x - x.detach()
    if mistake == "reduced_twice":
        return total + (group_size() - 1) * (total - total.detach())
    return total.detach() if mistake == "detached_statistics" else total


def _moments(x: Tensor, axis: int, mistake: str, centered: bool) -> tuple[Tensor, Tensor, float]:
    """Mean, variance and count of all processes, with a mistake."""
    if mistake != "cancellation":
        x = x.double()  # so that only the mistake is wrong
    count = x.new_full((1,), x.shape[axis])
    total = count if mistake == "local_statistics" else sum_over_group(count)
    some = total.clamp(min=1)

    def mean(v: Tensor) -> Tensor:
        summed = v.sum(axis, keepdim=True)
        if mistake == "local_statistics":
            return summed / some
        if mistake == "count_ignored":
            return _sum(summed / count.clamp(min=1), mistake) / group_size()
        return _sum(summed, mistake) / some

    if not centered:
        return x.new_zeros(()), mean(x.square()), float(total)
    m = mean(x)
    if mistake == "cancellation":
        return m, mean(x.square()) - m.square(), float(total)
    if mistake == "spread_missing":
        own = x.sum(axis, keepdim=True) / count.clamp(min=1)
        return m, mean((x - own).square()), float(total)
    return m, mean((x - m).square()), float(total)


def wrong_sync_batch_norm(
    mistake: str,
    input: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor,
    bias: Tensor,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    group: Any = None,
) -> Tensor:
    """Batch norm of (n, C) over all processes, with one mistake, or with none where it is ""."""
    if mistake == "skips_collective" and not len(input):
        return input * weight + bias  # nothing to normalize; but the others wait
    if training or mistake == "sends_in_evaluation":
        mean, var, count = _moments(input, 0, mistake, True)
    else:
        mean, var, count = running_mean, running_var, 0.0
    if training:
        kept, kept_var = mean.detach(), var.detach()
        if mistake == "running_local":
            kept, kept_var, count = _moments(input.detach(), 0, "local_statistics", True)
        if mistake == "running_local_count":
            count = len(input)
        bessel = 1.0 if mistake == "running_var_biased" else count / max(1.0, count - 1)
        running_mean.lerp_(kept.flatten().to(running_mean), momentum)
        running_var.lerp_((kept_var.flatten() * bessel).to(running_var), momentum)
    return ((input - mean) * torch.rsqrt(var + eps) * weight + bias).to(input.dtype)


def wrong_rms_norm(
    mistake: str, input: Tensor, weight: Tensor, eps: float = 1e-5, group: Any = None
) -> Tensor:
    """RMS norm of (T, h) over features on all processes, with one mistake."""
    _, square, _ = _moments(input, 1, mistake, False)
    return (input * torch.rsqrt(square + eps) * weight).to(input.dtype)


def wrong_layer_norm(
    mistake: str, input: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5, group: Any = None
) -> Tensor:
    """Layer norm of (T, h) over features on all processes, with one mistake."""
    mean, var, _ = _moments(input, 1, mistake, True)
    return ((input - mean) * torch.rsqrt(var + eps) * weight + bias).to(input.dtype)


class WrongQKNorm(nn.Module):
    """RMS norm of queries or keys whose heads lie on several processes, with one mistake.

    With `heads`, those of this process, all are normalized together, else each by itself.
    """

    def __init__(
        self, mistake: str, head_dim: int, heads: int | None = None, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.mistake, self.heads, self.eps = mistake, heads, eps
        shape = (head_dim,) if heads is None else (heads, head_dim)
        self.weight = nn.Parameter(torch.ones(shape))

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (N, heads, T, head_dim)."""
        if self.heads is None:
            axes = (1, 3) if self.mistake == "heads_together" else (3,)
            square = input.square().mean(axes, keepdim=True)
            return input * torch.rsqrt(square + self.eps) * self.weight
        if self.mistake == "each_head_by_itself":
            square = input.square().mean(3, keepdim=True)
            return input * torch.rsqrt(square + self.eps) * self.weight[:, None]
        weight = self.weight.flatten()
        if self.mistake == "weight_misplaced":  # each loads the first of all weights
            everyone: list[Any] = [None] * group_size()
            dist.all_gather_object(everyone, weight.detach())
            weight = weight + (torch.cat(everyone)[: len(weight)] - weight).detach()
        tokens = input.transpose(1, 2)  # (N, T, heads, head_dim)
        joined = tokens.reshape(-1, len(weight)) if len(weight) else tokens.flatten(0, 1).flatten(1)
        y = wrong_rms_norm(self.mistake, joined, weight, self.eps)
        return y.view(tokens.shape).transpose(1, 2)


def average_gradients(module: nn.Module) -> None:
    """The reduction of data parallel training where a sum is needed."""
    for p in module.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= group_size()


def sum_gradients_twice(module: nn.Module) -> None:
    """A hook and a finalizer that both sum."""
    for p in module.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            dist.all_reduce(p.grad)


def sum_gradients_in_bfloat16(module: nn.Module) -> None:
    """A reduction in the dtype of the activations."""
    for p in module.parameters():
        if p.grad is not None:
            rounded = p.grad.bfloat16()
            dist.all_reduce(rounded)
            p.grad.copy_(rounded)


def forget_gradients(module: nn.Module) -> None:
    """A training step that leaves the reduction out."""


_FEATURES = {
    "identity_backward": "FlashAttention issue 1244 asks about this all-reduce",
    "reduced_twice": "constructed",
    "local_statistics": "proposed in vLLM pull request 39298",
    "count_ignored": "vLLM's RMS norm of MiniMax averages means, right for equal shares",
    "detached_statistics": "constructed",
}
_SAMPLES = dict.fromkeys(
    (
        *_FEATURES,
        "spread_missing",
        "cancellation",
        "running_local",
        "running_local_count",
        "running_var_biased",
        "sends_in_evaluation",
        "skips_collective",
    ),
    "constructed",
) | {"local_statistics": "batch norm under data parallel training, without synchronization"}
_TOKENS = {
    "averaged": (average_gradients, "GPT-NeoX pull request 1259 mends it"),
    "reduced_twice": (sum_gradients_twice, "constructed"),
    "rounded_sum": (sum_gradients_in_bfloat16, "PyTorch issue 190626"),
    "partial": (
        forget_gradients,
        "NeMo RL issue 3716; Megatron-LM issue 7452; GPT-NeoX pull request 1257",
    ),
}


_ALL_HEADS = _FEATURES | {
    "each_head_by_itself": "constructed",
    "weight_misplaced": "vLLM pull request 38191; SGLang pull request 20967",
}


def parallel_mutants() -> Iterator[ParallelMutant]:
    """Every wrong norm over several processes, with the name that it must fail under."""
    for mistake, source in _SAMPLES.items():
        layer: Any = functools.partial(wrong_sync_batch_norm, mistake)
        yield ParallelMutant("batch_norm", "samples", mistake, layer, source=source)
    for mistake, source in _FEATURES.items():
        layer = functools.partial(wrong_rms_norm, mistake)
        yield ParallelMutant("rms_norm", "features", mistake, layer, source=source)
    for mistake in (*_FEATURES, "spread_missing", "cancellation"):
        layer = functools.partial(wrong_layer_norm, mistake)
        yield ParallelMutant("layer_norm", "features", mistake, layer)
    for mistake, source in _ALL_HEADS.items():
        layer = functools.partial(WrongQKNorm, mistake)
        yield ParallelMutant("rms_norm", "all heads", mistake, layer, source=source)
    layer = functools.partial(WrongQKNorm, "heads_together")
    yield ParallelMutant("rms_norm", "heads", "heads_together", layer)
    for mistake, (reduce, source) in _TOKENS.items():
        yield ParallelMutant("rms_norm", "heads", mistake, RMSNorm, reduce, source)
    for like, kind in (("layer_norm", LayerNorm), ("rms_norm", RMSNorm)):
        for mistake, (reduce, source) in _TOKENS.items():
            yield ParallelMutant(like, "tokens", mistake, kind, reduce, source)
