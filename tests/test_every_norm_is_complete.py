"""Each norm has all its parts, or its record says why not; what is missing is named."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from normlab import identify, layers, norms, plain, reference
from normlab.book.plotting.norms import SHOWN_NORMS
from normlab.book.proofs.invariances import TRANSFORMATIONS, is_invariant
from normlab.checks import check_layer
from normlab.checks.formula import FAMILIES
from normlab.checks.mutants import mutants
from normlab.norms import NORMS, Norm

ROOT = Path(__file__).resolve().parents[1]
ROW = "write its row in normlab/book/plotting/norms.py"
Part = Callable[[str, Norm, Path], str]
PARTS: dict[str, Part] = {}


def part(name: str) -> Callable[[Part], Part]:
    """Register what tells how to add a part, with an empty string where it is there."""

    def register(find: Part) -> Part:
        PARTS[name] = find
        return find

    return register


def lacking(module: object, names: tuple[str, ...]) -> str:
    exported = getattr(module, "__all__", ())
    return ", ".join(n for n in names if n not in exported or not hasattr(module, n))


@part("reference")
def find_reference(name: str, norm: Norm, root: Path) -> str:
    """The norms of torch have one; the plain form is what another is compared with."""
    if norm.torch is None:
        return ""
    lost = lacking(reference, (name, f"{name}_backward"))
    return lost and f"write {lost} in a file of normlab/reference, export it in its __init__.py"


@part("layer")
def find_layer(name: str, norm: Norm, root: Path) -> str:
    lost = lacking(layers, (name, *norm.modules))
    if lost or not norm.modules:
        lost = lost or "a module"
        return f"write {lost} in a file of normlab/layers, export it in its __init__.py"
    taken = tuple(inspect.signature(getattr(layers, name)).parameters)[1:]
    return "" if taken == norm.signature else f"signature: the record's is not {taken}"


@part("plain")
def find_plain(name: str, norm: Norm, root: Path) -> str:
    lost = lacking(plain, (name, f"{name}_backward"))
    return lost and f"write {lost} in normlab/plain.py"


@part("cases")
def find_cases(name: str, norm: Norm, root: Path) -> str:
    wrong = [
        case.shape
        for case in norm.cases
        if case.parameter_shape != norm.parameter_shape(case.shape, case.normalized_ndim)
        or len(set(case.shape)) < len(case.shape)
    ]
    if wrong:
        return f"cases: a size for each axis, and the shape of the weight; wrong at {wrong}"
    enough = len(norm.cases) >= 2
    enough &= {case.weight for case in norm.cases} == (
        {True, False} if norm.has_weight else {False}
    )
    return "" if enough else "cases: write at least two in the record, with a weight and without"


@part("check")
def find_check(name: str, norm: Norm, root: Path) -> str:
    first = find_layer(name, norm, root) or find_cases(name, norm, root)
    if first:
        return f"first {first}"
    if name not in FAMILIES:
        return "normlab.checks.formula describes no such norm"
    made = [getattr(layers, name), *(make_module(norm, module) for module in norm.modules)]
    for layer in made:
        report = check_layer(layer, like=name)
        if not report.passed:
            return f"check_layer rejects normlab's own: {report}"
    return ""


def make_module(norm: Norm, module: str) -> Callable[..., object]:
    ndim = 4 if module.endswith("2d") else min(len(case.shape) for case in norm.cases)
    case = next(c for c in norm.cases if len(c.shape) == ndim)
    size = case.shape[-1] if norm.trailing else case.shape[1]
    return getattr(layers, module)(*((case.num_groups,) if norm.grouped else ()), size)


@part("mutants")
def find_mutants(name: str, norm: Norm, root: Path) -> str:
    first = find_layer(name, norm, root) or find_cases(name, norm, root)
    if first:
        return f"first {first}"
    wrong = list(mutants(name))
    if len(wrong) < 10:
        place = "normlab/checks/mutants/collection.py"
        return f"{len(wrong)} apply; expected ten: see _applies in {place}"
    alive = [m.name for m in wrong[:3] if check_layer(m.make(), like=name).passed]
    return f"check_layer passes {alive}" if alive else ""


@part("invariances")
def find_invariances(name: str, norm: Norm, root: Path) -> str:
    first = find_layer(name, norm, root)
    if first:
        return f"first {first}"
    measured = tuple(t for t in TRANSFORMATIONS if is_invariant(name, t, seeds=(0,)))
    return "" if set(measured) == set(norm.invariances) else f"invariances: measured {measured}"


@part("identify")
def find_identity(name: str, norm: Norm, root: Path) -> str:
    first = find_layer(name, norm, root) or find_cases(name, norm, root)
    if first:
        return f"first {first}"
    case = norm.cases[0]
    found = identify(make_module(norm, norm.modules[0]), shape=case.shape).family
    return "" if found == name else f"identify says {found}: see checks/fingerprint/naming.py"


@part("style")
def find_style(name: str, norm: Norm, root: Path) -> str:
    if name not in SHOWN_NORMS:
        return ROW
    others = [row for other, row in SHOWN_NORMS.items() if other != name]
    for key in ("color", "linestyle", "marker", "label"):
        value = getattr(SHOWN_NORMS[name], key)
        if not value or value in [getattr(row, key) for row in others]:
            return f"{key}: write one in normlab/book/plotting/norms.py that no other norm has"
    return ""


def between_marks(text: str, mark: str) -> str:
    found = re.search(rf"generated: {mark}\n(.*?)(?:%|//) end", text, flags=re.DOTALL)
    return found[1] if found else ""


@part("explorer")
def find_explorer(name: str, norm: Norm, root: Path) -> str:
    text = (root / "book/_static/explorer.js").read_text(encoding="utf-8")
    there = re.search(rf"\b{name}:", between_marks(text, "norms"))
    return "" if there else "run `python book/_tools/norm_tables.py`"


@part("cheat sheet")
def find_sheet(name: str, norm: Norm, root: Path) -> str:
    """Its columns are the norms that torch has."""
    if norm.torch is None:
        return ""
    text = (root / "book/cheat_sheet.md").read_text(encoding="utf-8")
    there = f"| {SHOWN_NORMS[name].label} |" in between_marks(text, "layers")
    return "" if there else "run book/_tools/norm_tables.py and draw_axes.py"


@part("page")
def find_page(name: str, norm: Norm, root: Path) -> str:
    if name not in SHOWN_NORMS:
        return f"first {ROW}"
    page, _, target = SHOWN_NORMS[name].page.partition("#")
    toc = (root / "_toc.yml").read_text(encoding="utf-8")
    if f"file: book/{page}\n" not in toc:
        return f"write book/{page}.md, list it in _toc.yml and link it on book/pages.md"
    for text in read_page(root / "book" / page):
        if f"({target})=" in text:
            return ""
    return f"write a section with the target ({target})= in book/{page}"


def read_page(stem: Path) -> Iterator[str]:
    if stem.with_suffix(".md").exists():
        yield stem.with_suffix(".md").read_text(encoding="utf-8")
    if stem.with_suffix(".ipynb").exists():
        cells = json.loads(stem.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
        yield from ("".join(cell["source"]) for cell in cells)


@part("API page")
def find_api(name: str, norm: Norm, root: Path) -> str:
    text = (root / "book/api/norms.md").read_text(encoding="utf-8")
    return "" if f"`{name} <" in text else "run `python book/_tools/norm_tables.py`"


@part("bibliography")
def find_source(name: str, norm: Norm, root: Path) -> str:
    if name not in SHOWN_NORMS:
        return f"first {ROW}"
    text = (root / "book/references.bib").read_text(encoding="utf-8")
    source = SHOWN_NORMS[name].source
    there = source and re.search(rf"^@\w+{{{source},", text, flags=re.MULTILINE)
    return "" if there else f"add {source or 'the source'} to book/references.bib"


def missing(name: str, root: Path = ROOT) -> list[str]:
    """What a norm lacks, by its name and that of the part, with the remedy."""
    norm, found = NORMS[name], []
    for unknown in set(norm.absent) - set(PARTS):
        found.append(f"{name}, absent: {unknown!r} is no part; expected {', '.join(PARTS)}")
    for key, find in PARTS.items():
        remedy, reason = find(name, norm, root), norm.absent.get(key, "")
        if remedy and len(reason.split()) < 3:
            found.append(f"{name}, {key}: {remedy}; or give a reason in its record's `absent`")
        elif reason and not remedy:
            found.append(f"{name}, {key}: it is there, so take the reason out of `absent`")
    return found


@pytest.mark.parametrize("name", NORMS)
def test_every_norm_is_complete(name: str) -> None:
    lost = missing(name)
    assert lost == [], "\n".join(["", *lost])


# ---- each part is missed where it is taken away ------------------------------------------


@pytest.fixture
def only() -> Iterator[Callable[..., None]]:
    """Leave one norm in the registry, with another record or row; put all back in their order."""
    kept, shown = dict(NORMS), dict(SHOWN_NORMS)

    def change(name: str, **changes: object) -> None:
        of_row = {key: value for key, value in changes.items() if hasattr(shown[name], key)}
        of_record = {key: value for key, value in changes.items() if key not in of_row}
        norms.NORMS.clear()
        norms.NORMS[name] = dataclasses.replace(kept[name], **of_record)
        SHOWN_NORMS[name] = dataclasses.replace(shown[name], **of_row)

    yield change
    norms.NORMS.clear()
    norms.NORMS.update(kept)
    SHOWN_NORMS.update(shown)


CHANGED = [
    ("layer", "layer_norm", {"modules": ("LayerNorm", "LayerNorms")}, "write LayerNorms in"),
    ("layer", "layer_norm", {"signature": ("normalized_shape", "weight", "eps")}, "signature"),
    ("cases", "layer_norm", {"cases": ()}, "at least two"),
    ("cases", "layer_norm", {"cases": NORMS["layer_norm"].cases[:3]}, "and without"),
    ("cases", "layer_norm", {"cases": NORMS["batch_norm"].cases}, "(3, 5, 7)"),
    ("check", "layer_norm", {"centered": False}, "rejects"),
    ("check", "layer_norm", {"spread": "sum of squares"}, "rejects"),
    ("check", "rms_norm", {"spread": "sum of squares"}, "rejects"),
    ("check", "layer_norm", {"eps": 0.1}, "rejects"),
    ("invariances", "layer_norm", {"invariances": ()}, "measured ('weight_rescale'"),
    ("style", "layer_norm", {"color": ""}, "color"),
    ("style", "layer_norm", {"marker": ""}, "marker"),
    ("page", "layer_norm", {"page": "layer_norms#layer-norm-axes"}, "_toc.yml"),
    ("page", "layer_norm", {"page": "layer_norm#layer-norm-axe"}, "(layer-norm-axe)="),
    ("bibliography", "layer_norm", {"source": "ba2016norm"}, "references.bib"),
]


@pytest.mark.parametrize(("key", "name", "changes", "remedy"), CHANGED)
def test_a_wrong_record_is_named(key, name, changes, remedy, only) -> None:
    assert PARTS[key](name, NORMS[name], ROOT) == ""
    only(name, **changes)
    assert remedy in PARTS[key](name, norms.NORMS[name], ROOT)


@pytest.mark.parametrize(
    ("absent", "line"),
    [
        ({}, "layer_norm, page: write a section"),
        ({"page": "no place"}, "layer_norm, page: write a section"),
        ({"page": "it has no page in this book"}, None),
        ({"page": "no page here", "style": "it is not drawn"}, "layer_norm, style: it is there"),
        ({"page": "no page here", "reverence": "it has none"}, "'reverence' is no part"),
    ],
)
def test_a_reason_counts_where_the_part_is_absent(absent, line, only) -> None:
    only("layer_norm", absent=absent, page="layer_norm#no-such-target")
    found = missing("layer_norm")
    assert len(found) == (line is not None)
    assert line is None or line in found[0]


def test_two_norms_of_one_color_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    norm, color = NORMS["rms_norm"], SHOWN_NORMS["layer_norm"].color
    assert find_style("rms_norm", norm, ROOT) == ""
    twin = dataclasses.replace(SHOWN_NORMS["rms_norm"], color=color)
    monkeypatch.setitem(SHOWN_NORMS, "rms_norm", twin)
    assert "color" in find_style("rms_norm", norm, ROOT)


def test_a_norm_that_the_book_does_not_show_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SHOWN_NORMS, "rms_norm")
    for key in ("style", "page", "bibliography"):
        assert ROW in PARTS[key]("rms_norm", NORMS["rms_norm"], ROOT)


TAKEN_AWAY = [
    ("reference", reference, "layer_norm"),
    ("reference", reference, "layer_norm_backward"),
    ("layer", layers, "layer_norm"),
    ("layer", layers, "LayerNorm"),
    ("plain", plain, "layer_norm_backward"),
    ("check", layers, "layer_norm"),
    ("invariances", layers, "layer_norm"),
    ("identify", layers, "LayerNorm"),
]


@pytest.mark.parametrize(("key", "module", "name"), TAKEN_AWAY)
def test_a_part_of_the_package_is_missed(key, module, name, monkeypatch) -> None:
    norm = NORMS["layer_norm"]
    assert PARTS[key]("layer_norm", norm, ROOT) == ""
    monkeypatch.delattr(module, name)
    found = PARTS[key]("layer_norm", norm, ROOT)
    assert f"write {name} in" in found


def test_a_norm_that_identification_does_not_know_is_named(monkeypatch) -> None:
    # of which it says that it computes no norm
    monkeypatch.setattr(layers, "LayerNorm", lambda size: torch.nn.Linear(size, size))
    assert "identify says None" in find_identity("layer_norm", NORMS["layer_norm"], ROOT)


def test_too_few_mutants_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.mutants", lambda name: [])
    assert "0 apply" in find_mutants("layer_norm", NORMS["layer_norm"], ROOT)


def test_mutants_that_live_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = dataclasses.replace(next(mutants("layer_norm")), make=lambda: layers.layer_norm)
    monkeypatch.setattr(f"{__name__}.mutants", lambda name: [alive] * 10)
    assert "check_layer passes" in find_mutants("layer_norm", NORMS["layer_norm"], ROOT)


CUT = [
    ("explorer", "book/_static/explorer.js", "    layer_norm: {"),
    ("cheat sheet", "book/cheat_sheet.md", "| layer norm |"),
    ("page", "_toc.yml", "file: book/layer_norm\n"),
    ("API page", "book/api/norms.md", "`layer_norm <"),
    ("bibliography", "book/references.bib", "@misc{ba2016layer,"),
]


@pytest.mark.parametrize(("key", "file", "cut"), CUT)
def test_a_part_of_the_book_is_missed(key, file, cut, tmp_path) -> None:
    for each in ("_toc.yml", file, "book/layer_norm.ipynb"):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / each, tmp_path / each)
    norm = NORMS["layer_norm"]
    assert PARTS[key]("layer_norm", norm, tmp_path) == ""
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert cut in text
    (tmp_path / file).write_text(text.replace(cut, ""), encoding="utf-8")
    assert PARTS[key]("layer_norm", norm, tmp_path) != ""


def test_every_part_is_seen_missing_here() -> None:
    """A new part needs a line above."""
    seen = {key for key, *_ in (*CHANGED, *TAKEN_AWAY, *CUT)}
    assert set(PARTS) - seen == {"mutants"}, "take each part away once"
