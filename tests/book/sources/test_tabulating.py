"""Tables of a notebook: what stands in a cell, and what is refused."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch

from normlab.book.sources import tabulate
from normlab.book.sources.tabulating import Table


def read(table: Table) -> list[list[str]]:
    return table.cells.to_numpy().tolist()


def test_numbers_are_rounded_and_the_rest_stays() -> None:
    rows = {"a": [0.125, 3, "same", True], "b": [torch.tensor(2.0), 40, None, False]}
    table = tabulate(rows, ["loss", "steps", "output", "finite"], corner="norm")
    assert read(table) == [["0.12", "3", "same", "yes"], ["2.00", "40", "", "no"]]
    assert list(table.cells.index) == ["a", "b"]
    assert table.cells.columns.name == "norm"


@pytest.mark.parametrize("value", [-0.0, -0.004, torch.tensor(-1e-9)])
def test_no_minus_stands_before_a_zero(value: Any) -> None:
    assert read(tabulate({"a": [value, -0.006]})) == [["0.00", "-0.01"]]


def test_a_percentage_near_zero_has_no_minus_and_a_small_number_keeps_it() -> None:
    assert read(tabulate({"a": [-0.001]}, form=".0%")) == [["0%"]]
    assert read(tabulate({"a": [-0.001]}, form=".0e")) == [["-1e-03"]]


def test_forms_may_differ_by_column() -> None:
    rows = {"a": {"rate": 0.001, "loss": 2.0, "accuracy": 0.5}}
    assert read(tabulate(rows, form={"rate": "g", "accuracy": ".0%"})) == [["0.001", "2.00", "50%"]]


def test_columns_choose_and_order() -> None:
    rows = {"a": {"x": 1, "y": 2, "z": 3}, "b": {"z": 6, "y": 5, "x": 4}}
    assert read(tabulate(rows)) == [["1", "2", "3"], ["4", "5", "6"]]
    assert read(tabulate(rows, ["z", "x"])) == [["3", "1"], ["6", "4"]]
    assert read(tabulate(pd.DataFrame(rows).T, ["z", "x"])) == [["3", "1"], ["6", "4"]]
    series = {name: pd.Series(row) for name, row in rows.items()}
    assert read(tabulate(series, ["z", "x"])) == [["3", "1"], ["6", "4"]]
    with pytest.raises(ValueError, match=r"rows: 'a' has no \['w'\]"):
        tabulate(series, ["w", "x"])


def test_a_pivoted_table_keeps_its_names_and_loses_its_titles() -> None:
    runs = pd.DataFrame({"norm": ["a", "a", "b"], "lr": [0.1, 1.0, 1.0], "loss": [1.0, 2.0, 3.0]})
    table = tabulate(runs.pivot(index="norm", columns="lr", values="loss"), corner="loss")
    assert read(table) == [["1.00", "2.00"], ["nan", "3.00"]]
    heads = table.cells.columns
    assert (list(heads), table.cells.index.name, heads.name) == ([0.1, 1.0], None, "loss")


def test_a_name_in_parts_is_written_once() -> None:
    table = tabulate({("a", 1): [1.0], ("a", 2): [2.0]}, ["loss"])
    assert '<th rowspan="2" valign="top">a</th>' in table._repr_html_()


def test_what_pandas_is_set_to_changes_nothing() -> None:
    rows = {f"row {i}": ["a phrase of forty characters " * 2, *range(30)] for i in range(70)}
    before = tabulate(rows)
    with pd.option_context("display.max_rows", 4, "display.max_columns", 3, "display.width", 20):
        after = tabulate(rows)
        assert repr(after) == repr(before)
        assert after._repr_html_() == before._repr_html_()
    assert "..." not in repr(before) + before._repr_html_()
    assert len(repr(before).splitlines()) == 71


def test_html_holds_no_markup_of_a_name() -> None:
    assert "<b>" not in tabulate({"<b>": ["<b>"]}, ["<b>"], corner="<b>")._repr_html_()


@pytest.mark.parametrize(
    ("rows", "wanted", "complaint"),
    [
        ({}, {}, "rows: there are none"),
        (pd.DataFrame({"x": []}), {}, "rows: there are none"),
        ({"a": [1], "b": [1, 2]}, {}, "rows: 'b' has 2 cells for 1 columns"),
        ({"a": [1, 2]}, {"columns": ["x"]}, "rows: 'a' has 2 cells for 1 columns"),
        ({"a": {"x": 1}, "b": {"y": 1}}, {}, r"rows: 'b' has no \['x'\]; it has \['y'\]"),
        ({"a": [1.0]}, {"form": {"loss": ".1f"}}, r"form: no column is named \{'loss'\}"),
    ],
)
def test_what_is_no_table_is_refused(rows: Any, wanted: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        tabulate(rows, **wanted)
