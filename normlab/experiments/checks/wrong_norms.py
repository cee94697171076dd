"""Which kind of check kills which wrong norm, over several seeds of the inputs?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from normlab.checks.formula import FAMILIES
from normlab.checks.kill_matrix import KINDS, compute_kill_matrix
from normlab.checks.mutants import mutants
from normlab.experiments.settings import Index

__all__ = ["Config", "Outcome", "Result", "run"]


@dataclass(frozen=True)
class Config:
    """The wrong norms of the suite under the conformance checks.

    Attributes:
        families: of norms.
        seeds: of the inputs, each a run of its own.
    """

    families: tuple[str, ...] = tuple(FAMILIES)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Outcome:
    """One wrong norm.

    Attributes:
        like: family that it claims to be.
        name: of its mistake.
        kills: kind of check -> number of seeds for which it rejects the norm.
        named: number of seeds for which the report names this mistake and no other; None where
            the name of the check says it all.
    """

    like: str
    name: str
    kills: dict[str, int]
    named: int | None


@dataclass(frozen=True)
class Result:
    """All wrong norms.

    Attributes:
        outcomes: one for each wrong norm.
        seeds: how many there were.
    """

    outcomes: tuple[Outcome, ...]
    seeds: int

    def killers(self, outcome: Outcome) -> set[str]:
        """Kinds of check that reject a wrong norm for every seed."""
        return {kind for kind, count in outcome.kills.items() if count == self.seeds}

    def survivors(self, *, without: str | None = None) -> list[Outcome]:
        """Wrong norms that live, if the checks of one kind are left out."""
        return [o for o in self.outcomes if not self.killers(o) - {without}]

    def mistakes(self) -> list[str]:
        """Names of the mistakes, in the order in which they are first met."""
        return list(dict.fromkeys(o.name for o in self.outcomes))

    def shares(self, kinds: Sequence[str] = tuple(KINDS)) -> list[list[float]]:
        """One row for each mistake: for each kind, the share of families in which it kills."""
        table = []
        for name in self.mistakes():
            sets = [self.killers(o) for o in self.outcomes if o.name == name]
            table.append([sum(kind in s for s in sets) / len(sets) for kind in kinds])
        return table


def run(config: Config) -> Result:
    """Put every wrong norm of the families through the checks, once for each seed."""
    outcomes = []
    for like in config.families:
        wrong = list(mutants(like))
        matrices = [compute_kill_matrix(wrong, seeds=(seed,)) for seed in config.seeds]
        for m in wrong:
            key = (m.norm, m.name)
            kills = {kind: sum(kind in x.killers[key] for x in matrices) for kind in KINDS}
            named = sum(x.mistakes[key] == {m.mistake} for x in matrices) if m.mistake else None
            outcomes.append(Outcome(m.norm, m.name, {k: n for k, n in kills.items() if n}, named))
    return Result(tuple(outcomes), len(config.seeds))
