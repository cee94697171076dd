"""Questions that the chapters ask of a table of runs, beyond what pandas answers in a line."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd


def where(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """The rows with these values of columns.

    Raises:
        ValueError: there are none.

    Example:
        >>> runs = pd.DataFrame({"lr": [0.1, 0.1, 1.0], "seed": [0, 1, 0], "loss": [3, 4, 5]})
        >>> where(runs, lr=0.1).loss.tolist()
        [3, 4]
    """
    chosen = table
    for column, value in values.items():
        chosen = chosen[chosen[column] == value]
    if chosen.empty:
        raise ValueError(f"values: no row has {values}")
    return chosen


def best(
    table: pd.DataFrame, measure: str, *, over: str, largest: bool = False, **values: Any
) -> tuple[Any, float]:
    """The value of a column, such as a learning rate, with the best median, and that median.

    Args:
        measure: the column that is compared; a missing number counts as the worst.
        over: the column of which a value is chosen; of equally good ones its smallest.
        largest: whether more is better.
        values: column=value of the rows that are compared.

    Example:
        >>> runs = pd.DataFrame({"lr": [1, 1, 2, 2], "seed": [0, 1, 0, 1], "loss": [3, 4, 5, None]})
        >>> best(runs, "loss", over="lr")
        (1, 3.5)
    """
    worst = -math.inf if largest else math.inf
    rows = where(table, **values)
    medians = rows[measure].astype(float).fillna(worst).groupby(rows[over]).median()
    chosen = medians.idxmax() if largest else medians.idxmin()
    return getattr(chosen, "item", lambda: chosen)(), float(medians[chosen])


def at_best(
    table: pd.DataFrame,
    measure: str,
    *,
    over: str,
    by: Sequence[str] = (),
    largest: bool = False,
    **values: Any,
) -> pd.DataFrame:
    """The rows at the value that :func:`best` chooses, in each group its own.

    Args:
        by: the columns whose values make a group, such as `["norm"]`.

    Example:
        >>> norms = ["none", "none", "rms_norm", "rms_norm"]
        >>> runs = pd.DataFrame({"norm": norms, "lr": [1, 2, 1, 2], "loss": [3, 5, 4, 2]})
        >>> at_best(runs, "loss", over="lr", by=["norm"]).lr.tolist()
        [1, 2]
    """
    rows = where(table, **values)
    groups = [group for _, group in rows.groupby(list(by), sort=False)] if by else [rows]
    chosen = [best(group, measure, over=over, largest=largest)[0] for group in groups]
    return pd.concat([where(g, **{over: v}) for g, v in zip(groups, chosen, strict=True)])


def curves(
    table: pd.DataFrame, measure: str, *, groups: str, along: str
) -> dict[Any, list[list[float]]]:
    """Group -> (seeds, points), which the figures draw; NaN where a number is missing.

    Raises:
        ValueError: not exactly one row for a group, point and seed.

    Example:
        >>> seeds, losses = [0, 0, 1, 1], [5, 6, 7, 8]
        >>> runs = pd.DataFrame({"norm": "a", "lr": [1, 2] * 2, "seed": seeds, "loss": losses})
        >>> curves(runs, "loss", groups="norm", along="lr")
        {'a': [[5, 6], [7, 8]]}
    """
    axes = [groups, "seed", along]
    found = table.set_index(axes)[measure]
    wide = found.unstack(along, sort=False)  # raises for two rows of a group, point and seed
    if len(found) != wide.size:
        raise ValueError(
            f"table: {wide.size - len(found)} rows are missing for {' and '.join(axes)}"
        )
    return {group: wide.loc[group].values.tolist() for group in table[groups].unique()}


def read_header(path: Path | str) -> dict[str, Any]:
    """What a record says of its run: settings, versions, processor and command."""
    with Path(path).open(encoding="utf-8") as file:
        header: dict[str, Any] = json.loads(file.readline())
    return header


def describe_record(path: Path | str) -> str:
    """Say in two lines what was recorded, with which torch, and how to record it again."""
    header = read_header(path)
    lines = map(json.loads, Path(path).read_text(encoding="utf-8").splitlines()[1:])
    rows = [row for line in lines for row in (line if isinstance(line, list) else [line])]
    seeds = header["settings"].get("seeds") or [row["seed"] for row in rows]
    return (
        f"recorded: {len(rows)} runs, seeds {min(seeds)} to {max(seeds)}, "
        f"torch {header['versions']['torch'].partition('+')[0]}\n{header['command']}"
    )
