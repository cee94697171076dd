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
from sheet import IMAGE, LABELED, ROLE, Section, read_sections

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


links = load(Path(__file__).with_name("test_links_of_answers.py"))
pictures = load(BOOK / "_tools" / "draw_axes.py")


def sheet() -> str:
    return PAGE.read_text(encoding="utf-8")


def find_broken_links(text: str) -> list[str]:
    return links.broken_links(IMAGE.sub("", text), links.read_book())


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


def test_every_statement_has_a_link_that_leads_somewhere() -> None:
    assert find_broken_links(sheet()) == []
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
    ("cheat-layers", "over N, T: `nn.BatchNorm1d(D)` on", "over N, D: `nn.BatchNorm1d(D)` on"),
    ("cheat-layers", "`nn.LayerNorm((C, H, W))`", "`nn.LayerNorm((H, W))`"),
    ("cheat-layers", "over D/G: `nn", "over D: `nn"),
    ("cheat-layers", "`nn.GroupNorm(G, D)` on `x.mT`", "`nn.GroupNorm(1, D)` on `x.mT`"),
    ("cheat-layers", "`nn.RMSNorm(D)`", "`nn.RMSNorm((T, D))`"),
    ("cheat-layers", "axes/batch_norm-images", "axes/instance_norm-images"),
    ("cheat-layers", "sqrt(var(x) + eps)", "(sqrt(var(x)) + eps)"),
    ("cheat-layers", "`x / sqrt(mean(x**2) + eps) * weight`", "`x / sqrt(var(x) + eps) * weight`"),
    ("cheat-layers", "| `weight`: `normalized_shape` |", "| `weight`, `bias`: (C) |"),
    ("cheat-layers", "nothing; if `affine`", "nothing; if `track_running_stats`"),
    ("cheat-layers", "`running_mean`, `running_var`: (C), `num", "`running_mean`, `num"),
    ("cheat-layers", "train: of the batch; eval: running, an affine map", "the same function"),
    ("cheat-layers", "| the same function |", "| train: of the batch |"),
    ("cheat-layers", "the batch, in train |", "itself |"),
    ("cheat-layers", "`eps=1e-05`, `momentum=0.1` |", "`eps=1e-05`, `momentum=0.9` |"),
    ("cheat-layers", "`eps=1e-05`, `momentum=0.1` |", "`eps=1e-05` |"),
    ("cheat-layers", "| `eps=1e-05` |", "| `eps=1e-06` |"),
    ("cheat-layers", "1.2e-07", "9.8e-04"),
    ("cheat-layers", "`x.movedim(1, -1)`", "`x.mT`"),
    ("cheat-gradients", "- mean(g) -", "-"),
    ("cheat-gradients", "g = dy * weight  # weight goes inside", "g = dy  # weight comes later"),
    ("cheat-gradients", "(g - x_hat * mean(g * x_hat))", "(g + x_hat * mean(g * x_hat))"),
    ("cheat-gradients", "dx = rstd * g  #", "dx = rstd * (g - mean(g))  #"),
    ("cheat-gradients", "total(dy * x_hat), total(dy)", "total(g * x_hat), total(g)"),
    ("cheat-eps", "`sqrt(eps / 3)`", "`sqrt(eps) / 3`"),
    ("cheat-eps", "| `1 / sqrt(eps)` | x² |", "| `1 / sqrt(eps)` | x |"),
    ("cheat-eps", "`max(sqrt(var), eps)`", "`max(var, eps)`"),
    ("cheat-eps", "| `1 / eps` | x |", "| `1 / sqrt(eps)` | x |"),
    ("cheat-eps", "1.8e-03", "1.0e-05"),
    ("cheat-divisor", "`sqrt((n - 1) / n)`", "`(n - 1) / n`"),
    ("cheat-divisor", "`batch_var * n / (n - 1)`", "`batch_var * (n - 1) / n`"),
    ("cheat-divisor", "(1 - momentum) * running + momentum * batch",
     "momentum * running + (1 - momentum) * batch"),
    ("cheat-divisor", "`(1 - momentum)**k`", "`momentum**k`"),
    ("cheat-libraries", "| keras | 1e-03 |", "| keras | 1e-05 |"),
    ("cheat-libraries", "0.9 of old | 0.1 |", "0.9 of new | 0.9 |"),
    ("cheat-libraries", "| 0.1 | n-1 |", "| 0.1 | n |"),
    ("cheat-libraries", "| 1e-07 |", "| 1e-05 |"),
    ("cheat-libraries", "Gemma, stores w - 1", "Gemma"),
    ("cheat-libraries", "| Llama | | |", "| Llama | 1e-06 | |"),
    ("cheat-invariances", "| layer norm | yes | - |", "| layer norm | yes | yes |"),
    ("cheat-invariances", "| batch norm, eval | - |", "| batch norm, eval | yes |"),
    ("cheat-invariances", "λ row | W+1cᵀ", "W+1cᵀ | λ row"),
    ("cheat-invariances", "gradient by 1/λ", "gradient by λ"),
    ("cheat-residual", "norm(alpha * x + f(x))", "norm(x + alpha * f(x))"),
    ("cheat-residual", "x + f(norm(x))", "norm(x) + f(norm(x))"),
    ("cheat-residual", "| `(8 * N) ** (-1 / 4)` |", "| `(8 * N) ** (1 / 4)` |"),
    ("cheat-residual", "`(3 * M) ** (1 / 4)`", "`(2 * M) ** (1 / 4)`"),
    ("cheat-residual", "0.81", "0.87"),
    ("cheat-precision", "from 256 on", "from 65504 on"),
    ("cheat-precision", "45\n  in float16", "16\n  in float16"),
    ("cheat-precision", "1/128", "1/256"),
    ("cheat-precision", "times weight, then cast", "cast, then times weight"),
    ("cheat-precision", "1e-08", "1e-06"),
    ("cheat-checks", "`weight_after_projection`", "`one_pass`"),
    ("cheat-checks", "size 3e-03", "size 1"),
    ("cheat-checks", "`bessel_corrected`", "`other_eps`"),
    ("cheat-checks", "`state_lost`", "`kept`"),
    ("cheat-checks", "`normlab check module:Object --like layer_norm`",
     "`normlab check module:Object --like rms_norm`"),
    ("cheat-mistakes", "over W if W equals C", "over C if W equals C"),
    ("cheat-mistakes", "`nn.LayerNorm(C)`", "`nn.GroupNorm(1, C)`"),
    ("cheat-mistakes", "`eval()` does not stop the", "`eval()` stops the"),
    ("cheat-mistakes", "changes batch, group and instance norm", "changes batch and group norm"),
    ("cheat-mistakes", "`norm(x + alpha * f(x))`", "`norm(alpha * (x + f(x)))`"),
    ("cheat-mistakes", "* **NaN**", "* **Inf**"),
    ("cheat-mistakes", "is lost in training, before", "is lost, before"),
    ("cheat-later", "(x_hat * r + d) * weight", "(x_hat * r * weight + d)"),
    ("cheat-later", "1 / r_max, r_max)", "0, r_max)"),
    ("cheat-later", "(mean(x) - running_mean) / sqrt", "(mean(x) - running_mean) * sqrt"),
    ("cheat-later", "bias, threshold)", "threshold, bias)"),
    ("cheat-later", "x + x * length", "x * length"),
    ("cheat-later", "threshold)` | H, W |", "threshold)` | N, H, W |"),
    ("cheat-later", "| inputs of a filter |", "| C |"),
    ("cheat-later", "maximum(sqrt(sum(x**2)), eps)", "sqrt(sum(x**2) + eps)"),
    ("cheat-later", "(1 + weight)", "weight"),
    ("cheat-later", "erf(alpha * x + shift)", "erf(alpha * (x + shift))"),
    ("cheat-later", "tanh(alpha * x) * weight", "tanh(alpha * x * weight)"),
    ("cheat-later", "| running mean and variance |", "| nothing |"),
]  # fmt: skip


@pytest.mark.parametrize(("label", "right", "wrong"), WRONG)
def test_a_wrong_sheet_is_rejected(label: str, right: str, wrong: str) -> None:
    text = sheet()
    assert right in read_sections(text)[label].text
    with pytest.raises(Exception):  # noqa: B017, PT011  (wrong code may fail in any way)
        verify(text.replace(right, wrong), label)


@pytest.mark.parametrize("added", ["It halves 0.37 of them.", "Call `nn.Tanh()`."])
@pytest.mark.parametrize("label", VERIFIERS)
def test_what_nobody_verified_is_found(label: str, added: str) -> None:
    if label == "cheat-mistakes":
        added = f"* **More**: {added}"
    (start,) = (m for m in LABELED.finditer(sheet()) if m[1] == label)
    nexts = [m.start() for m in LABELED.finditer(sheet()) if m.start() > start.start()]
    end = min(nexts, default=len(sheet()))
    with pytest.raises(AssertionError):
        verify(f"{sheet()[:end].rstrip()}\n\n{added}\n\n{sheet()[end:]}", label)


def test_a_dead_link_is_found() -> None:
    wrong = sheet().replace("<bn-axes>", "<bn-axis>").replace("`bn-axes`", "`bn-axis`")
    assert find_broken_links(wrong) != []


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
