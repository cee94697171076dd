"""Wrong residual blocks and initializations that a test suite must reject.

`DEEP_NORM_MUTANTS` maps the name of a mistake to a function `(sublayer, norm, alpha)` that
returns the wrong block as a function of x; `DEEP_NORM_INIT_MUTANTS` to a function
`(block, beta)` that initializes in place. Each is wrong in the one way that its name says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["DEEP_NORM_INIT_MUTANTS", "DEEP_NORM_MUTANTS", "PRE_NORM_MUTANTS"]

Block = Callable[[Tensor], Tensor]


def alpha_on_the_branch(sublayer: Any, norm: Any, alpha: float) -> Block:
    """Met in a published collection of annotated implementations, whose text has it right."""
    return lambda x: norm(x + alpha * sublayer(x))


def alpha_on_the_sum(sublayer: Any, norm: Any, alpha: float) -> Block:
    """Scales the input of the norm, which scales it back."""
    return lambda x: norm(alpha * (x + sublayer(x)))


def no_residual(sublayer: Any, norm: Any, alpha: float) -> Block:
    """A norm of the scaled input and nothing else; met in study notes."""
    return lambda x: norm(alpha * x)


def alpha_missing(sublayer: Any, norm: Any, alpha: float) -> Block:
    """Post-LN under another name."""
    return lambda x: norm(x + sublayer(x))


def skip_outside_the_norm(sublayer: Any, norm: Any, alpha: float) -> Block:
    """Normalizes the branch alone."""
    return lambda x: alpha * x + norm(sublayer(x))


def second_skip(sublayer: Any, norm: Any, alpha: float) -> Block:
    """Adds the input once more, as a wrapper around a finished block does."""
    return lambda x: x + norm(alpha * x + sublayer(x))


def norm_before_the_branch(sublayer: Any, norm: Any, alpha: float) -> Block:
    """Pre-LN with a scaled skip, which grows without bound."""
    return lambda x: alpha * x + sublayer(norm(x))


def one_over_alpha(sublayer: Any, norm: Any, alpha: float) -> Block:
    """Divides the skip where it should multiply it."""
    return lambda x: norm(x / alpha + sublayer(x))


def no_skip(sublayer: Any, norm: Any, alpha: float) -> Block:
    """Forgets the skip."""
    return lambda x: norm(sublayer(x))


def no_norm(sublayer: Any, norm: Any, alpha: float) -> Block:
    """Forgets the norm."""
    return lambda x: alpha * x + sublayer(x)


def gradient_cut(sublayer: Any, norm: Any, alpha: float) -> Block:
    """The right output, with a skip that passes no gradient on."""
    return lambda x: norm(alpha * x.detach() + sublayer(x))


DEEP_NORM_MUTANTS: dict[str, Callable[[Any, Any, float], Block]] = {
    mutant.__name__.replace("_", " "): mutant
    for mutant in (
        alpha_on_the_branch,
        alpha_on_the_sum,
        no_residual,
        alpha_missing,
        skip_outside_the_norm,
        second_skip,
        norm_before_the_branch,
        one_over_alpha,
        no_skip,
        no_norm,
        gradient_cut,
    )
}


def norm_after_the_sum(sublayer: Any, norm: Any) -> Block:
    """Post-LN where Pre-LN is meant."""
    return lambda x: norm(x + sublayer(x))


def skip_behind_the_norm(sublayer: Any, norm: Any) -> Block:
    """Branches off behind the norm instead of before it."""

    def block(x: Tensor) -> Tensor:
        x = norm(x)
        return x + sublayer(x)

    return block


PRE_NORM_MUTANTS: dict[str, Callable[[Any, Any], Block]] = {
    "norm after the sum": norm_after_the_sum,
    "skip behind the norm": skip_behind_the_norm,
}

_SCALED = ("v_proj", "out_proj", "linear1", "linear2")


@torch.no_grad()
def _draw(block: nn.Module, gains: dict[str, float], *, fan_in_only: bool = False) -> None:
    """Xavier's rule with a gain for each matrix, 1 where none is given."""
    for name, layer in block.named_children():
        assert isinstance(layer, nn.Linear)
        fans = 2 * layer.in_features if fan_in_only else layer.in_features + layer.out_features
        layer.weight.normal_(0, gains.get(name, 1.0) * (2 / fans) ** 0.5)


def _all_but(*left_out: str) -> Callable[[nn.Module, float], None]:
    scaled = [name for name in _SCALED if name not in left_out]
    return lambda block, beta: _draw(block, dict.fromkeys(scaled, beta))


def beta_on_query_and_key(block: nn.Module, beta: float) -> None:
    """Scales every matrix."""
    _draw(block, dict.fromkeys((*_SCALED, "q_proj", "k_proj"), beta))


def beta_inverted(block: nn.Module, beta: float) -> None:
    """Enlarges the weights, as a common description of the method has it."""
    _draw(block, dict.fromkeys(_SCALED, 1 / beta))


def beta_on_the_variance(block: nn.Module, beta: float) -> None:
    """Multiplies the variance of the entries, not the entries."""
    _draw(block, dict.fromkeys(_SCALED, beta**0.5))


def beta_twice(block: nn.Module, beta: float) -> None:
    """Passes the gain and multiplies by it, too."""
    _draw(block, dict.fromkeys(_SCALED, beta**2))


def wrong_fan(block: nn.Module, beta: float) -> None:
    """Uses the fan-in where Xavier's rule has the mean of both fans."""
    _draw(block, dict.fromkeys(_SCALED, beta), fan_in_only=True)


def biases_changed(block: nn.Module, beta: float) -> None:
    """Scales the biases along with the matrices."""
    _draw(block, dict.fromkeys(_SCALED, beta))
    with torch.no_grad():
        for name in _SCALED:
            block.get_parameter(f"{name}.bias").mul_(beta)


DEEP_NORM_INIT_MUTANTS: dict[str, Callable[[nn.Module, float], None]] = {
    "beta missing": _all_but(*_SCALED),
    "beta missing on the value projection": _all_but("v_proj"),
    "beta missing on the attention output projection": _all_but("out_proj"),
    "beta missing on the feed-forward matrices": _all_but("linear1", "linear2"),
    "beta on query and key": beta_on_query_and_key,
    "beta inverted": beta_inverted,
    "beta on the variance": beta_on_the_variance,
    "beta twice": beta_twice,
    "wrong fan": wrong_fan,
    "biases changed": biases_changed,
}
