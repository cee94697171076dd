"""Wrong norms over several processes, each made from one mistake of `mistakes`.

They are called by the name of a mistake, which other processes can be sent; "" makes none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normlab.layers import LayerNorm, RMSNorm
from normlab.norms import NORMS
from normlab.parallel.division import Divided
from normlab.parallel.gradients import reduce_norm_gradients
from normlab.parallel.mistakes import MISTAKES, Mistake

CONSTRUCTED = "constructed"
_RIGHT = Mistake("")


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
    source: str = CONSTRUCTED


def _named(mistake: str) -> Mistake:
    return MISTAKES[mistake] if mistake else _RIGHT


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
    """Batch norm of (n, C) over all processes."""
    wrong = _named(mistake)
    if wrong.skips_empty and not len(input):
        return input * weight + bias  # nothing to normalize; but the others wait
    mean, var, count = running_mean, running_var, 0.0
    if training or wrong.sends_in_evaluation:
        mean, var, count = wrong.moments(input, 0, wrong.sums, True)
    if training:
        recorded = wrong.record(input.detach(), (mean.detach(), var.detach(), count))
        for running, new in zip((running_mean, running_var), recorded, strict=True):
            running.lerp_(new.flatten().to(running), momentum)
    return ((input - mean) * torch.rsqrt(var + eps) * weight + bias).to(input.dtype)


def wrong_rms_norm(
    mistake: str, input: Tensor, weight: Tensor, eps: float = 1e-5, group: Any = None
) -> Tensor:
    """RMS norm of (T, h) over features on all processes."""
    wrong = _named(mistake)
    _, square, _ = wrong.moments(input, 1, wrong.sums, False)
    return (input * torch.rsqrt(square + eps) * weight).to(input.dtype)


def wrong_layer_norm(
    mistake: str, input: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5, group: Any = None
) -> Tensor:
    """Layer norm of (T, h) over features on all processes."""
    wrong = _named(mistake)
    mean, var, _ = wrong.moments(input, 1, wrong.sums, True)
    return ((input - mean) * torch.rsqrt(var + eps) * weight + bias).to(input.dtype)


class WrongQKNorm(nn.Module):
    """RMS norm of queries or keys whose heads lie on several processes.

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
        wrong = _named(self.mistake)
        if self.heads is None or wrong.head_axes is not None:
            square = input.square().mean(wrong.head_axes or (3,), keepdim=True)
            weight = self.weight if self.heads is None else self.weight[:, None]
            return input * torch.rsqrt(square + self.eps) * weight
        weight = self.weight.flatten()
        if wrong.weights is not None:
            weight = wrong.weights(weight)
        tokens = input.transpose(1, 2)  # (N, T, heads, head_dim)
        joined = tokens.reshape(-1, len(weight)) if len(weight) else tokens.flatten(0, 1).flatten(1)
        y = wrong_rms_norm(self.mistake, joined, weight, self.eps)
        return y.view(tokens.shape).transpose(1, 2)


# Functions and classes of each norm by what is divided. Where each process has whole samples,
# tokens or heads of a norm, the layer is right and what is done to its gradients is not.
_NORMS: dict[tuple[str, Divided], Any] = {
    ("batch_norm", "samples"): wrong_sync_batch_norm,
    ("rms_norm", "features"): wrong_rms_norm,
    ("layer_norm", "features"): wrong_layer_norm,
    ("rms_norm", "all heads"): WrongQKNorm,
    ("rms_norm", "heads"): WrongQKNorm,
    ("layer_norm", "tokens"): LayerNorm,
    ("rms_norm", "tokens"): RMSNorm,
}


def parallel_mutants() -> Iterator[ParallelMutant]:
    """Every wrong norm over several processes, with the name that it must fail under."""
    for (like, over), norm in _NORMS.items():
        for name, mistake in MISTAKES.items():
            if over in mistake.over and mistake.wrong_norm(NORMS[like]):
                layer = norm if over == "tokens" else functools.partial(norm, name)
                reduce = mistake.reduce if over in ("tokens", "heads") else reduce_norm_gradients
                source = mistake.met.get((like, over), CONSTRUCTED)
                yield ParallelMutant(like, over, name, layer, reduce, source)
