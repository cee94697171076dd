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
from normlab.parallel.division import Divided
from normlab.parallel.gradients import reduce_norm_gradients
from normlab.parallel.mistakes import MISTAKES, ParallelMistake
from normlab.parallel.simulation import standardize, standardize_heads

CONSTRUCTED = "constructed"
_RIGHT = ParallelMistake("")


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


def _named(mistake: str) -> ParallelMistake:
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
    if not training and not wrong.sends_in_evaluation:
        return (input - running_mean) * torch.rsqrt(running_var + eps) * weight + bias
    (x_hat,), (found,) = standardize(wrong, [input], 0, eps, True)
    if training:
        recorded = wrong.record(input.detach(), found)
        for running, new in ((running_mean, recorded.mean), (running_var, recorded.var)):
            running.lerp_(new.detach().flatten().to(running), momentum)
    return (x_hat * weight + bias).to(input.dtype)


def wrong_rms_norm(
    mistake: str, input: Tensor, weight: Tensor, eps: float = 1e-5, group: Any = None
) -> Tensor:
    """RMS norm of (T, h) over features on all processes."""
    (x_hat,), _ = standardize(_named(mistake), [input], 1, eps, False)
    return (x_hat * weight).to(input.dtype)


def wrong_layer_norm(
    mistake: str, input: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5, group: Any = None
) -> Tensor:
    """Layer norm of (T, h) over features on all processes."""
    (x_hat,), _ = standardize(_named(mistake), [input], 1, eps, True)
    return (x_hat * weight + bias).to(input.dtype)


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
            weight = self.weight if self.heads is None else self.weight[:, None]
            return standardize_heads(input, wrong.head_axes or (3,), self.eps, False) * weight
        (weight,) = wrong.weights([self.weight.flatten()])
        tokens = input.transpose(1, 2)  # (N, T, heads, head_dim)
        joined = tokens.reshape(-1, len(weight)) if len(weight) else tokens.flatten(0, 1).flatten(1)
        y = wrong_rms_norm(self.mistake, joined, weight, self.eps)
        return y.view(tokens.shape).transpose(1, 2)


def reduce_wrongly(mistake: str, module: nn.Module) -> None:
    """What a training step does to the gradients of a module's weight and bias."""
    for p in module.parameters():
        if p.grad is not None:
            (changed,) = _named(mistake).gradients([p.grad])
            p.grad.copy_(changed)


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
            if not mistake.fits(like, over):
                continue
            layer = norm if over == "tokens" else functools.partial(norm, name)
            copied = over in ("tokens", "heads")
            reduce = functools.partial(reduce_wrongly, name) if copied else reduce_norm_gradients
            source = mistake.seen_in.get((like, over), CONSTRUCTED)
            yield ParallelMutant(like, over, name, layer, reduce, source)
