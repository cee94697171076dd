"""Which kind of check kills which wrong norm, over several seeds of the inputs?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from normlab.checks.formula import FAMILIES
from normlab.checks.kill_matrix import KINDS, compute_kill_matrix
from normlab.checks.mutants import mutants
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.results import Result
from normlab.experiments.settings import Index
from normlab.norms import NORMS

Killers = Mapping[tuple[str, str], Set[str]]


@dataclass(frozen=True)
class Config:
    """The wrong norms of the suite under the conformance checks."""

    families: tuple[str, ...] = tuple(f for f in FAMILIES if NORMS[f].in_chapters)  #: of norms
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of the inputs, each a run of its own


def run_one(config: Config, like: str) -> list[dict[str, Any]]:
    """Put every wrong norm that claims to be of one family through the checks.

    Measures:
        name: of its mistake.
        kills: kind of check -> number of seeds for which it rejects the norm.
        named: number of seeds for which the report names this mistake and no other; None where
            the name of the check says it all.
    """
    wrong = list(mutants(like))
    matrices = [compute_kill_matrix(wrong, seeds=(seed,)) for seed in config.seeds]
    found = []
    for m in wrong:
        key = (m.norm, m.name)
        kills = {kind: sum(kind in x.killers[key] for x in matrices) for kind in KINDS}
        named = sum(x.mistakes[key] == {m.mistake} for x in matrices) if m.mistake else None
        kills = {kind: count for kind, count in kills.items() if count}
        found.append({"name": m.name, "kills": kills, "named": named})
    return found


run = Sweep(run_one, like="families")


def find_killers(result: Result, seeds: int) -> dict[tuple[str, str], frozenset[str]]:
    """(family, name of the mistake) -> kinds of check that reject it for all of so many seeds."""
    return {
        (o.like, o.name): frozenset(kind for kind, count in o.kills.items() if count == seeds)
        for o in result.outcomes
    }


def shares(killers: Killers, kinds: Sequence[str] = tuple(KINDS)) -> dict[str, list[float]]:
    """Mistake -> for each kind of check, the share of families in which it kills."""
    table = {}
    for mistake in dict.fromkeys(name for _, name in killers):
        sets = [kinds_of for (_, name), kinds_of in killers.items() if name == mistake]
        table[mistake] = [sum(kind in s for s in sets) / len(sets) for kind in kinds]
    return table
