"""Rows of numbers as a table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Table:
    """The text of each cell: HTML on a page, text in a terminal, whatever pandas is set to."""

    cells: pd.DataFrame

    def __repr__(self) -> str:
        return self.cells.to_string()

    def _repr_html_(self) -> str:
        import pandas as pd

        with pd.option_context("display.max_colwidth", None):
            return self.cells.to_html(border=0)


def tabulate(
    rows: Mapping[Any, Sequence[Any] | Mapping[Any, Any]] | pd.DataFrame,
    columns: Sequence[Any] | None = None,
    *,
    form: str | Mapping[Any, str] = ".2f",
    corner: str = "",
) -> Table:
    """A table that is HTML on a page and text in a terminal.

    Args:
        rows: name of a row -> its cells: a sequence in the order of `columns`, or a mapping or a
            series of pandas by their names; a tuple as name is a name in parts. A pandas table
            is taken as it is.
        columns: the heads, or the columns of a pandas table that are shown; None takes them
            from `rows`.
        form: how floats and tensors of one element are written, for all columns or by column
            (others are written with two decimals). Text and integers stay as they are, True and
            False become yes and no, None an empty cell.
        corner: what the names of the rows are, or what the numbers mean; stands top left.

    Returns:
        the table, which a cell shows where it is the last line.

    Raises:
        ValueError: there are no rows; a row does not fit the columns; `form` names no column.

    Example:
        >>> losses = {"batch norm": [0.5, 0.25], "layer norm": [0.125, -0.001]}
        >>> print(tabulate(losses, ["loss", "change"], corner="norm"))
        norm        loss change
        batch norm  0.50   0.25
        layer norm  0.12   0.00
    """
    import pandas as pd  # half a second, which only tables need

    if isinstance(rows, pd.DataFrame):
        table = rows if columns is None else rows[list(columns)]
    else:
        table = _make_table(rows, columns)
    if table.empty:
        raise ValueError("rows: there are none")
    forms = dict.fromkeys(table.columns, form) if isinstance(form, str) else form
    if unknown := set(forms) - set(table.columns):
        raise ValueError(f"form: no column is named {unknown}; there are {list(table.columns)}")
    cells = {c: [_write(v, forms.get(c, ".2f")) for v in table[c]] for c in table.columns}
    shown = pd.DataFrame(cells, index=table.index, columns=table.columns)
    shown.index.names = [None] * shown.index.nlevels
    shown.columns.names = [corner, *[None] * (shown.columns.nlevels - 1)]
    return Table(shown)


def _make_table(
    rows: Mapping[Any, Sequence[Any] | Mapping[Any, Any]], columns: Sequence[Any] | None
) -> pd.DataFrame:
    import pandas as pd

    if not rows:
        raise ValueError("rows: there are none")
    rows = {n: row.to_dict() if isinstance(row, pd.Series) else row for n, row in rows.items()}
    first = next(iter(rows.values()))
    if columns is None:
        columns = list(first if isinstance(first, Mapping) else range(len(first)))
    cells = []
    for name, row in rows.items():
        if isinstance(row, Mapping):
            if missing := [column for column in columns if column not in row]:
                raise ValueError(f"rows: {name!r} has no {missing}; it has {list(row)}")
            cells.append([row[column] for column in columns])
        elif len(row) == len(columns):
            cells.append(list(row))
        else:
            raise ValueError(f"rows: {name!r} has {len(row)} cells for {len(columns)} columns")
    names = list(rows)
    in_parts = all(isinstance(name, tuple) for name in names)
    index = pd.MultiIndex.from_tuples(names) if in_parts else names
    return pd.DataFrame(cells, index=index, columns=list(columns), dtype=object)


def _write(value: Any, form: str) -> str:
    if hasattr(value, "item"):
        value = value.item()
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return re.sub(r"^-(?=[0.]+%?$)", "", format(value, form))  # no minus before a zero
    return str(value)
