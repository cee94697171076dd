"""What may explain a wrong output: known mistakes, other axes and other groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from normlab.checks.formula import Formula
from normlab.checks.mistakes import MISTAKES, choices, structure
from normlab.norms import NORMS


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


def forward_candidates(right: Formula) -> list[Diagnosis]:
    """Other conventions than the declared ones, and other formulas."""
    return [
        Diagnosis(mistake.name, mistake.sentence(right), dict(mistake.changes))
        for mistake in (*choices(right), *structure(right))
    ]


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
        ("interleaved", MISTAKES["wrong_grouping"].says),
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
                declared = dims[0] if len(dims) == 1 else dims
                if NORMS[right.like].trailing:
                    wanted += f" (if they are meant, declare axis={declared})"
                text = (
                    f"for an input of {x.dim()} axes the statistics are taken over axes {dims}, "
                    f"expected {wanted}"
                )
                yield Diagnosis("wrong_axis", text, {"dims": dims})
