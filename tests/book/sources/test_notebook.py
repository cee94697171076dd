"""The set-up of a notebook, and the numbers that it hands to prose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from normlab.book.sources import glue, setup, wrap


@pytest.fixture(autouse=True)
def _restore_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("value", "threads"), [(None, 1), ("2", 2)])
def test_setup_takes_the_number_of_threads_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    value: str | None,
    threads: int,
) -> None:
    if value is None:
        monkeypatch.delenv("NORMLAB_THREADS", raising=False)
    else:
        monkeypatch.setenv("NORMLAB_THREADS", value)
    setup()
    assert torch.get_num_threads() == threads
    assert capsys.readouterr() == ("", "")


def test_a_cell_without_a_seed_draws_the_same_in_each_process() -> None:
    drawn = []
    for other in (1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(other)
            setup()
            drawn.append(torch.rand(3))
    assert torch.equal(*drawn)


@pytest.mark.parametrize("variable", ["NORMLAB_THREADS", "NORMLAB_NOISE"])
@pytest.mark.parametrize("value", ["0", "two", "-1", "", "1.5"])
def test_setup_refuses_what_is_no_positive_integer(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{variable}: got '"):
        setup()


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("0.37", "0.37"),
        (12, "12"),
        ("three", "three"),
        ("-0.5", "-0.5"),
        ("1,900", "'1,900'"),  # a tuple, without the quotes
        ("0.10", "'0.10'"),  # 0.1
        ("1e-3", "'1e-3'"),  # 0.001
        ("1.3, 0.4", "'1.3, 0.4'"),
    ],
)
def test_glue_stores_what_myst_nb_reads(value: str | int, stored: str) -> None:
    variables = pytest.importorskip("myst_nb.core.variables")
    assert variables.format_plain_text(stored, "") == str(value)
    InteractiveShell.instance()
    with capture_output() as captured:
        glue("gap", value)
    (output,) = captured.outputs
    assert output.data == {"application/papermill.record/text/plain": stored}
    assert output.metadata == {
        "scrapbook": {"name": "gap", "mime_prefix": "application/papermill.record/"}
    }


@pytest.mark.parametrize("value", [0.5, True, None, torch.tensor(1)])
def test_glue_refuses_values_that_are_not_rounded(value: object) -> None:
    with pytest.raises(TypeError, match="round it to text first"):
        glue("gap", value)  # type: ignore[arg-type]


def test_wrapped_lines_fit_the_page() -> None:
    message = "training raises, since there is one value per channel. " * 4
    lines = wrap(message).split("\n")
    assert max(map(len, lines)) <= 80 < len(message)
    assert " ".join(lines) == message.strip()
