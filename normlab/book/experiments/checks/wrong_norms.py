"""Which kind of check kills which wrong norm, over several seeds of the inputs?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import pandas as pd
from pydantic import NonNegativeInt

from normlab.book.experiments.sweep import experiment
from normlab.checks.formula import FAMILIES
from normlab.checks.kill_matrix import KINDS, compute_kill_matrix
from normlab.checks.mutants import mutants
from normlab.norms import NORMS

Killers = Mapping[tuple[str, str], Set[str]]


@experiment(like=[family for family in FAMILIES if NORMS[family].torch])
def wrong_norms(
    like: str, *, seeds: tuple[NonNegativeInt, ...] = (0, 1, 2, 3, 4)
) -> list[dict[str, Any]]:
    """Put every wrong norm that claims to be of one family through the checks.

    Args:
        seeds: of the inputs, each a run of its own.

    Returns:
        name: of its mistake.
        kills: kind of check -> number of seeds for which it rejects the norm.
        named: number of seeds for which the report names this mistake and no other; None where
            the name of the check says it all.
    """
    wrong = list(mutants(like))
    matrices = [compute_kill_matrix(wrong, seeds=(seed,)) for seed in seeds]
    found = []
    for m in wrong:
        key = (m.norm, m.name)
        kills = {kind: sum(kind in x.killers[key] for x in matrices) for kind in KINDS}
        named = sum(x.mistakes[key] == {m.mistake} for x in matrices) if m.mistake else None
        kills = {kind: count for kind, count in kills.items() if count}
        found.append({"name": m.name, "kills": kills, "named": named})
    return found


def find_killers(table: pd.DataFrame, seeds: int) -> dict[tuple[str, str], frozenset[str]]:
    """(family, name of the mistake) -> kinds of check that reject it for all of so many seeds."""
    return {
        (like, name): frozenset(kind for kind, count in kills.items() if count == seeds)
        for like, name, kills in zip(table.like, table.name, table.kills, strict=True)
    }


def count_kills(killers: Killers, kinds: Sequence[str] = tuple(KINDS)) -> pd.DataFrame:
    """Wrong norms that each kind of check (rows) rejects in each family (columns)."""
    rejected = [(kind, like) for (like, _), those in killers.items() for kind in those]
    families = list(dict.fromkeys(like for like, _ in killers))
    table = pd.DataFrame(rejected, columns=["kind", "like"])
    return pd.crosstab(table.kind, table.like).reindex(
        index=list(kinds), columns=families, fill_value=0
    )
