"""Every mistake of a residual block, and of DeepNorm's initialization, each defined once.

The checks of blocks try them to explain what they saw, and the wrong blocks of the suite are made
of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Map = Callable[[Tensor], Tensor]
Placement = Callable[[Tensor, Map, Map, float], Tensor]  # of x, F, norm, alpha


@dataclass(frozen=True)
class BlockMistake:
    """A block with one mistake."""

    message: str
    formula: Placement
    seen_in: str = ""  #: where; empty if it is constructed

    def make(self) -> Callable[..., Map]:
        """A builder of wrong blocks, of a branch, a norm and perhaps alpha."""
        return lambda f, norm, alpha=1.0: lambda x: self.formula(x, f, norm, alpha)


_DEEP_NORM = {
    "alpha on the branch": BlockMistake(
        "alpha multiplies the branch, norm(x + alpha F(x)); it belongs to the skip",
        lambda x, f, norm, a: norm(x + a * f(x)),
        "labml's annotated implementations, issue 145",
    ),
    "alpha on the sum": BlockMistake(
        "alpha multiplies the sum, norm(alpha (x + F(x))), and the norm divides it out again; "
        "it belongs to the skip alone",
        lambda x, f, norm, a: norm(a * (x + f(x))),
    ),
    "no residual": BlockMistake(
        "the branch is missing, norm(alpha x): there is no residual sum",
        lambda x, f, norm, a: norm(a * x),
        "study notes",
    ),
    "alpha missing": BlockMistake(
        "alpha is missing: this is Post-LN", lambda x, f, norm, a: norm(x + f(x))
    ),
    "skip outside the norm": BlockMistake(
        "only the branch is normalized, alpha x + norm(F(x)); the norm belongs around the sum",
        lambda x, f, norm, a: a * x + norm(f(x)),
    ),
    "second skip": BlockMistake(
        "x is added once more after the norm, x + norm(alpha x + F(x))",
        lambda x, f, norm, a: x + norm(a * x + f(x)),
    ),
    "norm before the branch": BlockMistake(
        "the norm stands before the branch, alpha x + F(norm(x)); here it comes after the sum",
        lambda x, f, norm, a: a * x + f(norm(x)),
    ),
    "one over alpha": BlockMistake(
        "the skip is divided by alpha, norm(x / alpha + F(x)); multiply it",
        lambda x, f, norm, a: norm(x / a + f(x)),
    ),
    "no skip": BlockMistake(
        "the skip is missing, norm(F(x)): there is no residual sum",
        lambda x, f, norm, a: norm(f(x)),
    ),
    "no norm": BlockMistake(
        "nothing is normalized, alpha x + F(x)", lambda x, f, norm, a: a * x + f(x)
    ),
    "gradient cut": BlockMistake(
        "the output is right and its gradient is not; is a part of it detached?",
        lambda x, f, norm, a: norm(a * x.detach() + f(x)),
    ),
}
_PRE_NORM = {
    "norm after the sum": BlockMistake(
        "the norm stands after the sum, norm(x + F(x)); here it comes before the branch",
        lambda x, f, norm, a: norm(x + f(x)),
    ),
    "skip behind the norm": BlockMistake(
        "the skip takes the normalized input, norm(x) + F(norm(x)); it should take x",
        lambda x, f, norm, a: norm(x) + f(norm(x)),
        "pytorch issue 61165",
    ),
}

# matrix of a Transformer layer -> what it is for, and whether DeepNorm multiplies it by beta
GAINS = {
    "q_proj": ("query", False),
    "k_proj": ("key", False),
    "v_proj": ("value", True),
    "out_proj": ("attention output", True),
    "linear1": ("feed-forward", True),
    "linear2": ("feed-forward", True),
}
SCALED = tuple(name for name, (_, scaled) in GAINS.items() if scaled)


@dataclass(frozen=True)
class InitMistake:
    """An initialization with one mistake: Xavier's rule with other gains or another fan."""

    message: str
    power: float = 1.0  #: of beta
    matrices: tuple[str, ...] = SCALED  #: that beta scales
    fan_in: bool = False  #: in place of the mean of both
    biases: bool = False  #: are scaled, too
    seen_in: str = ""  #: where; empty if it is constructed

    def gain(self, name: str, beta: float, fan_in: int, fan_out: int) -> float:
        """What a matrix shows, in units of Xavier's rule."""
        fans = ((fan_in + fan_out) / 2 / fan_in) ** 0.5 if self.fan_in else 1.0
        return fans * (beta**self.power if name in self.matrices else 1.0)

    def make(self) -> Callable[[nn.Module, float], None]:
        """The initialization of a block."""
        return functools.partial(_draw, self)


@torch.no_grad()
def _draw(mistake: InitMistake, block: nn.Module, beta: float) -> None:
    for name, layer in block.named_children():
        assert isinstance(layer, nn.Linear)
        fans = layer.in_features, layer.out_features
        layer.weight.normal_(0, mistake.gain(name, beta, *fans) * (2 / sum(fans)) ** 0.5)
        if mistake.biases and name in mistake.matrices:
            layer.bias.mul_(beta)


def _without(*left_out: str) -> tuple[str, ...]:
    return tuple(name for name in SCALED if name not in left_out)


_INITIALIZATION = {
    "beta missing": InitMistake(
        "all matrices have gain 1; beta scales four of the six kinds", matrices=()
    ),
    "beta missing on the value projection": InitMistake(
        "the value projection kept gain 1",
        matrices=_without("v_proj"),
        seen_in="xformers issue 219",
    ),
    "beta missing on the attention output projection": InitMistake(
        "the attention output projection kept gain 1", matrices=_without("out_proj")
    ),
    "beta missing on the feed-forward matrices": InitMistake(
        "the feed-forward matrices kept gain 1", matrices=_without("linear1", "linear2")
    ),
    "beta on query and key": InitMistake(
        "query and key are scaled by beta; they keep gain 1", matrices=tuple(GAINS)
    ),
    "beta inverted": InitMistake(
        "these matrices start larger, by 1 / beta, not smaller",
        power=-1,
        seen_in="a common description of the method",
    ),
    "beta on the variance": InitMistake(
        "beta scales the variance; it scales the entries", power=0.5
    ),
    "beta twice": InitMistake("beta is applied twice", power=2),
    "wrong fan": InitMistake(
        "not Xavier's rule: its variance is 2 over the sum of both fans", fan_in=True
    ),
    "biases changed": InitMistake("biases were changed", biases=True),
}

RESIDUAL_MISTAKES: dict[str, Mapping[str, Any]] = {
    "deep_norm": _DEEP_NORM,
    "pre_norm": _PRE_NORM,
    "deep_norm_init": _INITIALIZATION,
}
BLOCK_MISTAKES: dict[str, BlockMistake] = _PRE_NORM | _DEEP_NORM
INIT_MISTAKES: dict[str, InitMistake] = _INITIALIZATION
