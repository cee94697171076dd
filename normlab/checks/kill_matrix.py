"""Which check kills which mutant, over several seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from normlab.checks.conformance import examine
from normlab.checks.mutants import Mutant, mutants

__all__ = ["KINDS", "KillMatrix", "compute_kill_matrix"]

# checks that ask the same question of different inputs count as one
KINDS: dict[str, tuple[str, ...]] = {
    "values": (
        "ordinary input",
        "small input",
        "input near eps",
        "large input",
        "float64 input",
        "weight of either sign",
        "factor of 0",
        "activations",
        "other widths",
        "square input",
        "five axes",
        "shape as given",
    ),
    "call": ("call",),
    "shifted input": ("shifted input",),
    "gradients": (
        "gradient, ordinary input",
        "gradient, small input",
        "gradient, input near eps",
        "gradient, shifted input",
    ),
    "half precision": (
        "bfloat16, unit input",
        "bfloat16, small input",
        "float16, unit input",
        "float16, small input",
        "float16, large input",
        "bfloat16, shifted input",
        "float16, shifted input",
        "bfloat16, evaluation",
        "float16, evaluation",
        "bfloat16, activations",
        "float16, activations",
    ),
    "special values": ("special values", "bfloat16, special values", "float16, special values"),
    "frozen parameters": ("frozen parameters",),
    "input unchanged": ("input unchanged",),
    "upstream gradient unchanged": ("upstream gradient unchanged",),
    "eps argument": ("eps argument",),
    "strided input": ("strided input",),
    "constant input": ("constant input",),
    "empty input": ("empty input",),
    "batch of one": ("batch of one",),
    "running statistics": ("running statistics",),
    "evaluation": ("evaluation",),
    "saved state": ("saved state",),
}


@dataclass(frozen=True)
class KillMatrix:
    """For each mutant the kinds of check that reject it.

    Attributes:
        killers: (family, name of the mutant) -> kinds that reject it for every seed.
        mistakes: (family, name of the mutant) -> mistakes named for every seed.
    """

    killers: dict[tuple[str, str], frozenset[str]]
    mistakes: dict[tuple[str, str], frozenset[str]]

    def survivors(self, *, without: str | None = None) -> list[tuple[str, str]]:
        """Surviving mutants, without the checks of one kind."""
        return [mutant for mutant, kinds in self.killers.items() if not kinds - {without}]


def compute_kill_matrix(
    wrong: Iterable[Mutant] | None = None, *, seeds: Sequence[int] = (0, 1, 2)
) -> KillMatrix:
    """Put wrong norms through the conformance checks.

    Args:
        wrong: norms; None for the mutants of all.
        seeds: each of a run of its own.

    Raises:
        ValueError: there is no seed.
    """
    if not seeds:
        raise ValueError("seeds: got none; expected at least one, or nothing is checked")
    kind_of = {check: kind for kind, checks in KINDS.items() for check in checks}
    killers, mistakes = {}, {}
    for mutant in mutants() if wrong is None else wrong:
        kinds, names = [], []
        for seed in seeds:
            failures = examine(mutant.make(), like=mutant.norm, seeds=(seed,)).failures
            kinds.append({kind_of.get(f.check, f.check) for f in failures})
            names.append({f.mistake for f in failures if f.mistake})
        key = mutant.norm, mutant.name
        killers[key] = frozenset(set.intersection(*kinds))
        mistakes[key] = frozenset(set.intersection(*names))
    return KillMatrix(killers, mistakes)
