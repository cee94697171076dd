"""Which norms of torch have right second derivatives when weight or bias is missing?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from normlab import layers
from normlab.experiments.settings import Index, check_settings

__all__ = ["NORMS", "Config", "Outcome", "Result", "run"]

FEATURES = 6  # length of the last axis, and number of channels
Norm = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
Through = Literal["input", "bias", "input and bias"]

# The norm of torch, and ours, which consists of operations that can be differentiated twice.
NORMS: dict[str, tuple[Norm, Norm]] = {
    "layer_norm": (
        lambda x, w, b: functional.layer_norm(x, (FEATURES,), w, b),
        lambda x, w, b: layers.layer_norm(x, (FEATURES,), w, b),
    ),
    "batch_norm": (
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, True),
        lambda x, w, b: layers.batch_norm(x, None, None, w, b, True),
    ),
    "instance_norm": (
        lambda x, w, b: functional.instance_norm(x, None, None, w, b),
        lambda x, w, b: layers.instance_norm(x, None, None, w, b),
    ),
    "group_norm": (
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        lambda x, w, b: layers.group_norm(x, 2, w, b),
    ),
}


@dataclass(frozen=True)
class Config:
    """A function of first derivatives, differentiated again, in float64.

    The function is a random linear one of the gradient by the input, of the gradient by the bias,
    or of both. Its gradient by the upstream gradient is compared with that of our own layer.

    Attributes:
        norms: names of :data:`NORMS`.
        seed: of all numbers.
    """

    norms: tuple[str, ...] = tuple(NORMS)
    seed: Index = 0

    def __post_init__(self) -> None:
        check_settings(self)
        for name in self.norms:
            if name not in NORMS:
                raise ValueError(f"norms: got {name!r}; expected some of {', '.join(NORMS)}")


@dataclass(frozen=True)
class Outcome:
    """What one second derivative came to.

    Attributes:
        norm: name.
        weight: a weight was given.
        bias: a bias was given.
        through: first derivatives that the function depends on.
        verdict: "right"; "missing" when torch returns nothing where the truth is not 0; "wrong";
            "raises".
        message: of the exception, or "".
    """

    norm: str
    weight: bool
    bias: bool
    through: Through
    verdict: Literal["right", "missing", "wrong", "raises"]
    message: str


@dataclass(frozen=True)
class Result:
    """All second derivatives, and torch's version."""

    outcomes: tuple[Outcome, ...]
    torch: str

    def of(self, norm: str, weight: bool, bias: bool, through: Through) -> Outcome:
        """One outcome."""
        wanted = (norm, weight, bias, through)
        return next(o for o in self.outcomes if (o.norm, o.weight, o.bias, o.through) == wanted)


def _second_derivative(
    norm: Norm, weight: bool, bias: bool, through: Through, seed: int
) -> Tensor | None:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    shape = (5, FEATURES, FEATURES)
    x, dy, b = (random(*s).requires_grad_() for s in (shape, shape, (FEATURES,)))
    direction, w, bias_direction = random(*shape), random(FEATURES), random(FEATURES)
    y = norm(x, w if weight else None, b if bias else None)
    wanted = {"input": [x], "bias": [b], "input and bias": [x, b]}[through]
    first = torch.autograd.grad(y, wanted, dy, create_graph=True)
    directions = {x: direction, b: bias_direction}
    terms = [(g * directions[t]).sum() for g, t in zip(first, wanted, strict=True)]
    total = torch.stack(terms).sum()
    (second,) = torch.autograd.grad(total, dy, allow_unused=True)
    return second


def _outcome(norm: str, weight: bool, bias: bool, through: Through, seed: int) -> Outcome:
    of_torch, ours = NORMS[norm]
    expected = _second_derivative(ours, weight, bias, through, seed)
    try:
        got = _second_derivative(of_torch, weight, bias, through, seed)
    except RuntimeError as error:
        return Outcome(norm, weight, bias, through, "raises", str(error).splitlines()[0])
    if expected is None or got is None:
        verdict: Literal["right", "missing"] = "right" if expected is got else "missing"
        return Outcome(norm, weight, bias, through, verdict, "")
    close = torch.allclose(got, expected, rtol=1e-8, atol=1e-10)
    return Outcome(norm, weight, bias, through, "right" if close else "wrong", "")


def run(config: Config) -> Result:
    """Try every norm with and without weight and bias."""
    outcomes = []
    for norm in config.norms:
        for weight in (True, False):
            for bias in (True, False):
                throughs: tuple[Through, ...] = (
                    ("input", "bias", "input and bias") if bias else ("input",)
                )
                outcomes += [
                    _outcome(norm, weight, bias, through, config.seed) for through in throughs
                ]
    return Result(tuple(outcomes), torch.__version__)
