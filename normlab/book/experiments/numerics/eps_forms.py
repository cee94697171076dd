"""At which input size does eps take over, inside the root, outside it, and as a floor?"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from normlab.book.experiments.sweep import experiment

Place = Literal["inside", "outside", "clamp"]
EPS = 1e-5
STDS = (1.0, 0.3, 0.1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 7e-6, 5e-6, 3e-6, 1e-6)


def _check_place(place: str) -> None:
    if place not in get_args(Place):
        raise ValueError(f"place: got {place!r}; expected one of {get_args(Place)}")


def normalize_with(x: Tensor, eps: float, place: Place) -> Tensor:
    r"""Divide each centered row by its standard deviation σ, guarded by `eps` in one of three ways.

    .. math:: \sqrt{\sigma^2 + \epsilon}, \qquad \sigma + \epsilon, \qquad \max(\sigma, \epsilon)

    The rows are the last axis of `x`, and the ways are "inside", "outside" and "clamp".

    Units:
        `eps` has the units of x² inside the root, those of x otherwise.
    """
    _check_place(place)
    centered = x - x.mean(-1, keepdim=True)
    var = centered.square().mean(-1, keepdim=True)
    if place == "inside":
        return centered / (var + eps).sqrt()
    if place == "outside":
        return centered / (var.sqrt() + eps)
    return centered / var.sqrt().clamp_min(eps)


def output_size(std: float, eps: float, place: Place) -> float:
    """Standard deviation of the output for an input of standard deviation `std`.

    Example:
        >>> output_size(1e-3, 1e-6, "clamp"), round(output_size(1e-3, 1e-6, "inside"), 2)
        (1.0, 0.71)
    """
    _check_place(place)
    if place == "inside":
        return std / (std * std + eps) ** 0.5
    return std / (std + eps) if place == "outside" else std / max(std, eps)


def half_size(eps: float, place: Place) -> float:
    """Input standard deviation at which the output has half of its proper size.

    `(eps / 3) ** 0.5`, `eps` or `eps / 2`.
    """
    _check_place(place)
    return {"inside": (eps / 3) ** 0.5, "outside": eps, "clamp": eps / 2}[place]


def _standard_row(features: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    row = torch.randn(features, generator=generator, dtype=torch.float64)
    return normalize_with(row, 0.0, "inside")


def _size(y: Tensor) -> float:
    return y.square().mean().sqrt().item()


@experiment(place=get_args(Place))
def eps_forms(place: Place) -> dict[str, Any]:
    """Normalize rows of given standard deviations in float64, so that eps is all that is seen.

    Returns:
        sizes: standard deviation of the output, a row for each of three seeds, a column for each of
            `STDS`, the standard deviations of the input.
        halved: output size at the input size that :func:`half_size` names; a half is right.
        gain: factor by which a tiny change of a constant row is enlarged.
    """

    def norm(x: Tensor) -> Tensor:
        return normalize_with(x, EPS, place)

    rows = [_standard_row(64, seed) for seed in (0, 1, 2)]
    change = 1e-12 * _standard_row(64, seed=0)
    moved = norm(1.0 + change) - norm(torch.ones_like(change))
    return {
        "sizes": [[_size(norm(row * std)) for std in STDS] for row in rows],
        "halved": _size(norm(rows[0] * half_size(EPS, place))),
        "gain": (moved.norm() / change.norm()).item(),
    }
