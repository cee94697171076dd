"""Every formula, number and link of the cheat sheet is right; a wrong sheet is rejected."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import sheet_conventions as second
import sheet_later as later
import sheet_layers as first
import sheet_mistakes as mistakes
from loading import load
from sheet import LABELED, ROLE, Section, read_sections

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGE = BOOK / "cheat_sheet.md"
VERIFIERS: dict[str, Callable[[Section], None]] = {
    "cheat-layers": first.verify_layers,
    "cheat-gradients": second.verify_gradients,
    "cheat-eps": second.verify_eps,
    "cheat-divisor": second.verify_divisor,
    "cheat-libraries": second.verify_libraries,
    "cheat-invariances": second.verify_invariances,
    "cheat-residual": second.verify_residual,
    "cheat-precision": second.verify_precision,
    "cheat-checks": mistakes.verify_checks,
    "cheat-mistakes": mistakes.verify_mistakes,
    "cheat-later": later.verify_later,
}


pictures = load(BOOK / "_tools" / "draw_axes.py")


def sheet() -> str:
    return PAGE.read_text(encoding="utf-8")


def verify(text: str, label: str) -> None:
    """Verify one section of a sheet, and that nothing in it is left over."""
    section = read_sections(text)[label]
    VERIFIERS[label](section)
    assert section.unverified() == []


@pytest.mark.parametrize("label", VERIFIERS)
def test_the_sheet_is_right(label: str) -> None:
    verify(sheet(), label)


def test_every_section_is_verified() -> None:
    holding_others = {"cheat-sheet", "cheat-conventions"}
    assert set(read_sections(sheet())) == set(VERIFIERS) | holding_others


def test_every_statement_has_a_link() -> None:
    for label in VERIFIERS:
        text = read_sections(sheet())[label].text
        for part in re.split(r"\n(?=\* )|\n\n", text):
            if part.startswith(("```", "|")) or not part.strip():
                continue
            alone = part if part.startswith("* ") else text
            assert ROLE.search(alone), part


# A wrong sheet: where, what it says, and what it would say.
WRONG = [
    ("cheat-layers", "over N, H, W: `nn.BatchNorm2d(C)`", "over H, W: `nn.BatchNorm2d(C)`"),
    ("cheat-gradients", "(g - x_hat * mean(g * x_hat))", "(g + x_hat * mean(g * x_hat))"),
    ("cheat-eps", "`sqrt(eps / 3)`", "`sqrt(eps) / 3`"),
    ("cheat-divisor", "`sqrt((n - 1) / n)`", "`(n - 1) / n`"),
    ("cheat-libraries", "0.9 of old | 0.1 |", "0.9 of new | 0.9 |"),
    ("cheat-invariances", "| layer norm | yes | - |", "| layer norm | yes | yes |"),
    ("cheat-residual", "`(3 * M) ** (1 / 4)`", "`(2 * M) ** (1 / 4)`"),
    ("cheat-precision", "from 256 on", "from 65504 on"),
    ("cheat-checks", "`bessel_corrected`", "`other_eps`"),
    ("cheat-mistakes", "changes batch, group and instance norm", "changes batch and group norm"),
    ("cheat-later", "erf(alpha * x + shift)", "erf(alpha * (x + shift))"),
]


@pytest.mark.parametrize(("label", "right", "wrong"), WRONG)
def test_a_wrong_sheet_is_rejected(label: str, right: str, wrong: str) -> None:
    text = sheet()
    assert right in read_sections(text)[label].text
    with pytest.raises(Exception):  # noqa: B017, PT011  (wrong code may fail in any way)
        verify(text.replace(right, wrong), label)


def test_what_nobody_verified_is_found() -> None:
    (start,) = (m for m in LABELED.finditer(sheet()) if m[1] == "cheat-eps")
    for added in ("It halves 0.37 of them.", "Call `nn.Tanh()`."):
        with pytest.raises(AssertionError):
            verify(f"{sheet()[: start.end()]}\n{added}\n\n{sheet()[start.end() :]}", "cheat-eps")


@pytest.mark.parametrize("name", pictures.make_pictures())
def test_the_blocks_are_drawn_from_the_axes(name: str) -> None:
    stored = (pictures.FOLDER / name).read_text(encoding="utf-8")
    assert stored == pictures.make_pictures()[name]
    norm, _, layout = name.removesuffix(".svg").partition("-")
    labels = pictures.label_block(norm, layout)
    one = (labels == labels[0, 0, 0]).any(axis=(1, 2)).sum()
    assert (one == pictures.SAMPLES) == (norm == "batch_norm")
    others = {pictures.draw_block(n, layout) for n in ("batch_norm", "layer_norm")}
    assert len(others) == 2
