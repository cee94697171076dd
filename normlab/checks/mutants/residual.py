"""Wrong residual blocks and initializations that a test suite must reject."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.mutants.mutant import CONSTRUCTED, Mutant

Block = Callable[[Tensor], Tensor]
Initialization = Callable[[nn.Module, float], None]


# name of the mistake -> what it does, and the block that it makes of branch, norm (and alpha)
_DEEP_NORMS: dict[str, tuple[str, Callable[[Any, Any, float], Block]]] = {
    "alpha on the branch": (
        "alpha multiplies the branch",
        lambda f, norm, a: lambda x: norm(x + a * f(x)),
    ),
    "alpha on the sum": (
        "scales the input of the norm, which scales it back",
        lambda f, norm, a: lambda x: norm(a * (x + f(x))),
    ),
    "no residual": (
        "a norm of the scaled input and nothing else",
        lambda f, norm, a: lambda x: norm(a * x),
    ),
    "alpha missing": ("Post-LN under another name", lambda f, norm, a: lambda x: norm(x + f(x))),
    "skip outside the norm": (
        "normalizes the branch alone",
        lambda f, norm, a: lambda x: a * x + norm(f(x)),
    ),
    "second skip": (
        "adds the input once more, as a wrapper around a finished block does",
        lambda f, norm, a: lambda x: x + norm(a * x + f(x)),
    ),
    "norm before the branch": (
        "Pre-LN with a scaled skip, which grows without bound",
        lambda f, norm, a: lambda x: a * x + f(norm(x)),
    ),
    "one over alpha": (
        "divides the skip where it should multiply it",
        lambda f, norm, a: lambda x: norm(x / a + f(x)),
    ),
    "no skip": ("forgets the skip", lambda f, norm, a: lambda x: norm(f(x))),
    "no norm": ("forgets the norm", lambda f, norm, a: lambda x: a * x + f(x)),
    "gradient cut": (
        "the right output, with a skip that passes no gradient on",
        lambda f, norm, a: lambda x: norm(a * x.detach() + f(x)),
    ),
}
_PRE_NORMS: dict[str, tuple[str, Callable[[Any, Any], Block]]] = {
    "norm after the sum": (
        "Post-LN where Pre-LN is meant",
        lambda f, norm: lambda x: norm(x + f(x)),
    ),
    "skip behind the norm": (
        "branches off behind the norm instead of before it",
        lambda f, norm: lambda x: norm(x) + f(norm(x)),
    ),
}

_SCALED = ("v_proj", "out_proj", "linear1", "linear2")


@torch.no_grad()
def _draw(
    block: nn.Module,
    beta: float,
    *,
    power: float = 1.0,
    left_out: tuple[str, ...] = (),
    added: tuple[str, ...] = (),
    fan_in_only: bool = False,
    biases: bool = False,
) -> None:
    """Xavier's rule with the gain beta to some power for some of the matrices, 1 for others."""
    for name, layer in block.named_children():
        assert isinstance(layer, nn.Linear)
        scaled = name in (*_SCALED, *added) and name not in left_out
        fans = 2 * layer.in_features if fan_in_only else layer.in_features + layer.out_features
        layer.weight.normal_(0, (beta**power if scaled else 1.0) * (2 / fans) ** 0.5)
        if biases and scaled:
            layer.bias.mul_(beta)


def _draws(description: str, **changes: Any) -> tuple[str, Initialization]:
    return description, functools.partial(_draw, **changes)


_INITIALIZATIONS: dict[str, tuple[str, Initialization]] = {
    "beta missing": _draws("all matrices have gain 1", left_out=_SCALED),
    "beta missing on the value projection": _draws(
        "queries, keys and values share one matrix, of gain 1", left_out=("v_proj",)
    ),
    "beta missing on the attention output projection": _draws(
        "forgets one matrix of the attention", left_out=("out_proj",)
    ),
    "beta missing on the feed-forward matrices": _draws(
        "scales the attention alone", left_out=("linear1", "linear2")
    ),
    "beta on query and key": _draws("scales every matrix", added=("q_proj", "k_proj")),
    "beta inverted": _draws("enlarges the weights", power=-1),
    "beta on the variance": _draws(
        "multiplies the variance of the entries, not the entries", power=0.5
    ),
    "beta twice": _draws("passes the gain and multiplies by it, too", power=2),
    "wrong fan": _draws("the fan-in, where Xavier's rule has the mean of both", fan_in_only=True),
    "biases changed": _draws("scales the biases along with the matrices", biases=True),
}

_SOURCES = {
    "alpha on the branch": "labml's annotated implementations, issue 145",
    "no residual": "study notes",
    "skip behind the norm": "pytorch issue 61165",
    "beta missing on the value projection": "xformers issue 219",
    "beta inverted": "a common description of the method",
}


def _collect(norm: str, table: Mapping[str, tuple[str, Any]]) -> tuple[Mutant, ...]:
    def bind(wrong: Any) -> Callable[[], Any]:
        return lambda: wrong

    return tuple(
        Mutant(norm, name, text, bind(wrong), name, _SOURCES.get(name, CONSTRUCTED))
        for name, (text, wrong) in table.items()
    )


RESIDUAL_MUTANTS: dict[str, tuple[Mutant, ...]] = {
    "deep_norm": _collect("deep_norm", _DEEP_NORMS),
    "pre_norm": _collect("pre_norm", _PRE_NORMS),
    "deep_norm_init": _collect("deep_norm_init", _INITIALIZATIONS),
}
