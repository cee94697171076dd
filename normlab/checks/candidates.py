"""The mistakes of a forward pass, as changes of the formula."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from normlab.checks.formula import Formula
from normlab.norms import NORMS

_PLACES = {
    "inside": "inside the root",
    "outside": "added to the root",
    "clamp": "a lower bound of the root (a clamp)",
}


@dataclass(frozen=True)
class Diagnosis:
    """A mistake that explains what was seen."""

    mistake: str | None  #: short name, or None where nothing explains it
    sentence: str  #: for the report
    #: conventions of :class:`Formula` that describe the layer as it is
    changes: dict[str, Any] | None = None

    def __add__(self, other: Diagnosis) -> Diagnosis:
        return Diagnosis(
            f"{self.mistake}+{other.mistake}",
            f"{self.sentence}; {other.sentence}",
            {**(self.changes or {}), **(other.changes or {})},
        )

    def excludes(self, other: Diagnosis) -> bool:
        """Whether both describe the same choice."""
        return bool(set(self.changes or {}) & set(other.changes or {}))


def conventions(right: Formula) -> Iterator[Diagnosis]:
    """Other divisors, places of eps and offsets of the weight; each is a choice, if declared."""
    divisor = "n-1" if right.divisor == "n" else "n"
    yield Diagnosis(
        "bessel" if divisor == "n-1" else "biased",
        f"the variance has divisor {divisor}, expected {right.divisor}",
        {"divisor": divisor},
    )
    for place, words in _PLACES.items():
        if place != right.eps_placement:
            yield Diagnosis(
                f"eps_{place}",
                f"eps is {words}, expected {_PLACES[right.eps_placement]}",
                {"eps_placement": place},
            )
    factors = {0.0: "weight", 1.0: "1 + weight", 2.0: "2 + weight"}
    for offset, factor in factors.items():
        if offset != right.weight_offset:
            name = "weight_offset"
            if right.weight_offset == 1:
                name += "_forgotten" if offset == 0 else "_doubled"
            yield Diagnosis(
                name,
                f"the factor is {factor}, expected {factors[right.weight_offset]}",
                {"weight_offset": offset},
            )


def structure(right: Formula) -> Iterator[Diagnosis]:
    """What is centered, squared, divided and scaled in another way."""

    def centering(name: str, sentence: str, numerator: bool, variance: bool) -> Diagnosis:
        flags = {"center_numerator": numerator, "center_variance": variance}
        return Diagnosis(name, sentence, flags)

    if not NORMS[right.like].centered:
        text = "the mean is subtracted: this is LayerNorm"
        yield centering("centered", text, True, True)
        text = "the mean is subtracted before the division"
        yield centering("centered_numerator", text, True, False)
        text = "the standard deviation is taken in place of the root mean square"
        yield centering("centered_variance", text, False, True)
    else:
        text = "the mean is not subtracted before the division"
        yield centering("uncentered_numerator", text, False, True)
        text = "nothing is centered: the root mean square is taken in place of the variance"
        yield centering("missing_centering", text, False, False)
        text = "the variance is the mean of the squares: the mean is not subtracted in it"
        yield centering("uncentered_variance", text, True, False)
    affine = {
        "bias, weight": ("bias_first", "the weight multiplies the bias, too"),
        "no weight": ("weight_ignored", "the weight is not applied"),
        "no bias": ("bias_ignored", "the bias is not added"),
        "none": ("affine_ignored", "weight and bias are not applied"),
    }
    for order, (name, text) in affine.items():
        yield Diagnosis(name, text, {"affine_order": order})
    roots = {
        "variance": ("no_root", "the numerator is divided by the variance, not by its root"),
        "inverse": ("inverse_root", "the numerator is multiplied by the root, not divided"),
        "one": ("not_divided", "the numerator is not divided by anything"),
    }
    for root, (name, text) in roots.items():
        yield Diagnosis(name, text, {"root": root})
    if NORMS[right.like].spread == "sum of squares":
        yield Diagnosis("mean_not_sum", "the squares are averaged", {"sum_not_mean": True})
    else:
        what = "magnitudes" if NORMS[right.like].spread == "mean magnitude" else "squares"
        text = f"the {what} are summed, not averaged: 1/n is missing"
        yield Diagnosis("sum_not_mean", text, {"sum_not_mean": True})


def other_groups(right: Formula, x: Tensor) -> Iterator[Diagnosis]:
    """Other ways to form groups, for one input."""
    channels = x.shape[1] if x.dim() > 1 else 1
    norm = NORMS[right.like]
    if norm.needs_positions:
        for groups in (g for g in range(1, channels) if channels % g == 0):
            text = f"channels share statistics: {channels} channels form {groups} groups"
            yield Diagnosis("wrong_grouping", text, {"like": "group_norm", "num_groups": groups})
    if not norm.grouped:
        return
    for grouping, text in (
        ("interleaved", "neighboring channels fall into different groups"),
        ("per position", "each position of a group has statistics of its own"),
    ):
        if (grouping == "interleaved" and right.num_groups > 1) or x.dim() > 2:
            yield Diagnosis("wrong_grouping", text, {"grouping": grouping})
    for groups in range(1, channels + 1):
        if channels % groups == 0 and groups != right.num_groups:
            text = f"{channels} channels form {groups} groups, expected {right.num_groups}"
            yield Diagnosis("wrong_grouping", text, {"num_groups": groups})


def other_axes(right: Formula, x: Tensor) -> Iterator[Diagnosis]:
    """Other axes to reduce, for one input."""
    expected, grouped = right.view(x)[1], NORMS[right.like].grouped
    for size in range(1, x.dim() + 1):
        for dims in itertools.combinations(range(x.dim()), size):
            if (grouped or dims != expected) and all(x.shape[d] > 1 for d in dims):
                wanted = "the group's" if grouped else f"{expected}"
                text = (
                    f"for an input of {x.dim()} axes the statistics are taken over axes {dims}, "
                    f"expected {wanted}"
                )
                yield Diagnosis("wrong_axis", text, {"dims": dims})
