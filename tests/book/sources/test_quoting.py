"""A finding is quoted in a notebook by its sentence, with the numbers of its page."""

from __future__ import annotations

import json

import pytest

from normlab.book.sources import quote, read_findings

FINDING = """## What to remember

:::{finding} few
:kind: measured
:shown: small

At a batch of 4 it is ahead
in {glue:text}`runs:s` runs.
:::

:::{finding} many
:kind: proved
:shown: large

Nothing changes.

For all $x$, in {glue:text}`runs:s`
runs.
:::
"""


@pytest.fixture
def book(tmp_path):
    record = {"application/papermill.record/text/plain": "'5 of 5'"}
    output = {"data": record, "metadata": {"scrapbook": {"name": "runs"}}}
    cells = [
        {"cell_type": "markdown", "source": [FINDING]},
        {"cell_type": "code", "source": [], "outputs": [output, {"name": "stdout"}]},
    ]
    (tmp_path / "chapter.ipynb").write_text(json.dumps({"cells": cells}))
    return tmp_path


def shown(names, book) -> str:
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()
    with capture_output() as captured:
        quote(*names, book=book)
    (output,) = captured.outputs
    return output.data["text/markdown"]


def test_numbers_are_in_their_places(book):
    found = list(read_findings(book / "chapter.ipynb"))
    assert [one.name for one in found] == ["few", "many"]
    assert found[0].sentence == "At a batch of 4 it is ahead in 5 of 5 runs."
    assert (found[1].kind, found[1].shown) == ("proved", "large")
    assert (found[0].conditions, found[1].conditions) == ("", "For all $x$, in 5 of 5 runs.")


def test_a_finding_is_displayed_with_its_section(book):
    assert shown(["many"], book) == f"Nothing changes. [proved]({book}/chapter.ipynb#large)"
    both = shown(["many", "few"], book).splitlines()
    assert [line[:11] for line in both] == ["* Nothing c", "* At a batc"]


def test_what_is_not_there_is_an_error(book):
    with pytest.raises(ValueError, match="names: no finding is called 'none', 'other'"):
        quote("none", "few", "other", book=book)
    (book / "page.md").write_text(FINDING)
    with pytest.raises(KeyError, match=r"page.md, few: no cell binds runs"):
        list(read_findings(book / "page.md"))
