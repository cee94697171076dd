"""Write what the book shows of each norm's record: `python book/_tools/norm_tables.py`.

The parts stand between marks in the pages: the data of the explorer, two tables of the cheat
sheet, and the table of the API page. Everything in them comes from `normlab.norms`, but for names,
colors and links, which are those of `normlab.book.plotting.norms`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from pathlib import Path

from normlab import layers
from normlab.book.plotting.norms import SHOWN_NORMS
from normlab.book.proofs.invariances import INVARIANCES
from normlab.norms import NORMS, Norm, parameter_axes, reduced_axes

BOOK = Path(__file__).resolve().parents[1]
ROWS = {
    "formula": "{ref}`formula <layer-norm-formula>`",
    "vectors": "{ref}`(N, D) <bn-by-hand>`",
    "images": "{ref}`(N, C, H, W) <bvl-axes>`",
    "tokens": "{ref}`(N, T, D) <layer-norm-axes>`",
    "learned": "{ref}`learned <bvl-stored>`",
    "kept": "{ref}`kept besides <bn-running>`",
    "modes": "{ref}`train, eval <bn-train-eval>`",
    "depends": "{ref}`depends on <layer-norm-properties>`",
    "defaults": "{ref}`defaults of torch <numerics-libraries>`",
    "take it for": "{ref}`take it for <guide-choose>`",
    "think twice": "think twice",
}
# Axes in the order of memory; the channels are C, or D where there is no C.
LAYOUTS = {"vectors": "ND", "images": "NCHW", "tokens": "NTD"}
CHANGES = {
    "λW": "weight_rescale",
    "λ row": "row_rescale",
    "W+1cᵀ": "weight_recenter",
    "λx": "data_rescale",
    "λ case": "case_rescale",
    "x+c": "data_recenter",
}


def in_sheet() -> dict[str, Norm]:
    """The norms that have a column in the cheat sheet: those that torch has."""
    return {name: norm for name, norm in NORMS.items() if norm.torch}


def write_formula(norm: Norm) -> str:
    """The norm as code, with `mean`, `var` and `sqrt` over the cells that share statistics."""
    shifted = "(x - mean(x))" if norm.centered else "x"
    squares = "var(x)" if norm.centered and norm.spread == "mean square" else f"mean({shifted}**2)"
    if norm.spread == "sum of squares":
        squares = f"sum({shifted}**2)"
    root = f"sqrt({squares})"
    below = {
        "inside": f"sqrt({squares} + eps)",
        "outside": f"({root} + eps)",
        "clamp": f"max({root}, {'eps' if norm.spread == 'sum of squares' else 'sqrt(eps)'})",
    }[norm.eps_placement]
    weight = " * weight" if norm.has_weight else ""
    return f"`{shifted} / {below}{weight}{' + bias' if norm.has_bias else ''}`"


def letters_over(name: str, layout: str) -> str:
    """Axes of a layout that one mean is taken over; of channels in groups, those of one group.

    Norms of shapes read a whole image, or the features of a token; norms of channels have these
    on axis 1.
    """
    norm, axes = NORMS[name], LAYOUTS[layout]
    if norm.trailing:
        over = reduced_axes(name, len(axes), normalized_ndim=3 if layout == "images" else 1)
        return "".join(axes[axis] for axis in over)
    axes = _channels_second(axes)
    view = f"N.{axes[1:]}" if norm.grouped else axes
    return "".join(view[axis] for axis in reduced_axes(name, len(view)))


def letters_of_weight(name: str, layout: str) -> str:
    """Axes of a layout along which the weight varies."""
    axes = LAYOUTS[layout]
    ordered = axes if NORMS[name].trailing else _channels_second(axes)
    ndim = 3 if layout == "images" else 1
    return "".join(ordered[a] for a in parameter_axes(name, len(axes), normalized_ndim=ndim))


def _feature(layout: str) -> str:
    return "C" if "C" in LAYOUTS[layout] else "D"


def _channels_second(axes: str) -> str:
    return "NDT" if axes == "NTD" else axes


def _letters(name: str, layout: str) -> str:
    over, feature = letters_over(name, layout), _feature(layout)
    return ", ".join(f"{c}/G" if NORMS[name].grouped and c == feature else c for c in over)


def _call(norm: Norm, layout: str) -> str:
    rank = "2d" if layout == "images" else "1d"
    module = next((m for m in norm.modules if m.endswith(rank)), norm.modules[0])
    size = "(C, H, W)" if norm.trailing and layout == "images" else _feature(layout)
    groups = "G, " if norm.grouped else ""
    turned = " on `x.mT`" if layout == "tokens" and not norm.trailing else ""
    return f"`{'nn' if norm.torch else 'layers'}.{module}({groups}{size})`{turned}"


def _picture(name: str, layout: str) -> str:
    """The alternative text of a block: which cells share a mean."""
    over, feature = letters_over(name, layout), _feature(layout)
    if over == "CHW" and not NORMS[name].grouped:
        return "one whole sample"
    noun = "channel" if layout == "images" else "feature"
    share = "half of the" if NORMS[name].grouped else "all"
    cells = f"{share} {noun}s" if feature in over else f"one {noun}"
    samples = "all samples" if "N" in over else "one sample"
    if layout == "tokens":
        samples = f"all tokens of {samples}" if "T" in over else "one token"
    positions = "" if layout != "images" else ", all positions" if "H" in over else ", one position"
    return f"{cells} of {samples}{positions}"


def _layout_cell(name: str, norm: Norm, layout: str) -> str:
    if not letters_over(name, layout):
        return "none: one value per mean, {ref}`not always refused <cheat-mistakes>`"
    picture = f"![{_picture(name, layout)}](_static/axes/{name}-{layout}.svg)"
    return f"{picture} over {_letters(name, layout)}: {_call(norm, layout)}"


def _state_cells(norm: Norm) -> dict[str, str]:
    """What a module learns, keeps and defaults to, as its constructor says."""
    taken = inspect.signature(getattr(layers, norm.modules[0])).parameters
    defaults = {key: p.default for key, p in taken.items()}
    names = ", ".join(f"`{n}`" for n in ("weight", "bias") if n in norm.signature)
    size = {"channel": "(C)", "shape": "`normalized_shape`", "scalar": "one", "none": ""}
    learned = f"{names}: {size[norm.parameters]}" if names else "nothing"
    if defaults.get("affine") is False:
        learned = f"nothing; if `affine`, {learned}"
    kept = "nothing"
    if defaults.get("track_running_stats"):
        kept = "`running_mean`, `running_var`: (C), `num_batches_tracked`"
    elif norm.has_running:
        kept = "nothing; if `track_running_stats`, as batch norm"
    said = [f"`{key}={defaults[key]!r}`" for key in ("eps", "momentum") if key in defaults]
    if norm.eps is None:
        said = ["`eps=None`: {ref}`1.2e-07 <rms-norm-conventions>`, also in 16 bits"]
    said += ["`affine=False`"] if defaults.get("affine") is False else []
    return {"learned": learned, "kept": kept, "defaults": ", ".join(said)}


def write_column(name: str, norm: Norm) -> dict[str, str]:
    """The cells of one norm in the first table of the cheat sheet, by row."""
    modes = "the same function, unless it tracks" if norm.has_running else "the same function"
    if norm.over_batch:
        modes = "train: of the batch; eval: running, an affine map"
    return {
        "formula": write_formula(norm),
        **{layout: _layout_cell(name, norm, layout) for layout in LAYOUTS},
        **_state_cells(norm),
        "modes": modes,
        "depends": "the batch, in train" if norm.over_batch else "itself",
        "take it for": SHOWN_NORMS[name].use_for,
        "think twice": SHOWN_NORMS[name].caution,
    }


def _table(rows: list[list[str]]) -> str:
    rule = ["---"] * len(rows[0])
    lines = ["| " + " | ".join(row) + " |" for row in rows[1:]]
    head = "| " + " | ".join(rows[0]) + " |"
    return "\n".join([head.replace("|  |", "| |"), "|" + "|".join(rule) + "|", *lines])


def write_layers() -> str:
    """The first table of the cheat sheet."""
    norms = in_sheet()
    columns = [write_column(name, norm) for name, norm in norms.items()]
    head = ["", *(SHOWN_NORMS[name].label for name in norms)]
    return _table([head, *([text, *(c[row] for c in columns)] for row, text in ROWS.items())])


def write_invariances() -> str:
    """The table "what changes nothing" of the cheat sheet."""
    rows = [["{ref}`norm of Wx <inv-table>`", *CHANGES]]
    for name, norm in in_sheet().items():
        title = SHOWN_NORMS[name].label
        frozen = {f"{title}, eval": f"{name}_frozen"} if norm.over_batch else {}
        train = f"{title}, train" if frozen else title
        for label, key in {train: name, **frozen}.items():
            rows.append([label, *("yes" if INVARIANCES[key][c] else "-" for c in CHANGES.values())])
    return _table(rows)


def write_call(norm: Norm, layout: str) -> str:
    """How torch makes the layer, with places for sizes; empty where torch has none."""
    if norm.torch is None:
        return ""
    ending = "2d" if layout == "images" else "1d"
    module = next((m for m in norm.modules if m.endswith(ending)), norm.modules[0])
    channels = "{groups}, {channels}" if norm.grouped else "{channels}"
    return f"nn.{module}({'{shape}' if norm.kind == 'shape' else channels})"


def write_explorer() -> str:
    """The data of the explorer, as a constant of JavaScript: its cells, given by axes."""
    shown = {
        name: {
            "name": SHOWN_NORMS[name].label[0].upper() + SHOWN_NORMS[name].label[1:],
            "color": SHOWN_NORMS[name].color,
            "over": {", ".join(LAYOUTS[layout]): letters_over(name, layout) for layout in LAYOUTS},
            "weight": {
                ", ".join(LAYOUTS[layout]): letters_of_weight(name, layout) for layout in LAYOUTS
            },
            "call": {", ".join(LAYOUTS[layout]): write_call(norm, layout) for layout in LAYOUTS},
            "grouped": norm.grouped,
            "centered": norm.centered,
            "spread": norm.spread,
            "epsPlacement": norm.eps_placement,
            "epsBounds": "root" if norm.spread == "sum of squares" else "square",
        }
        for name, norm in NORMS.items()
        if "explorer" not in norm.absent
    }
    lines = ",\n".join(f"    {name}: {json.dumps(data)}" for name, data in shown.items())
    return f"  const NORMS = {{\n{lines},\n  }};"


def write_api() -> str:
    """The table of the API page."""
    rows = [["name", "one mean for each", "spread", "eps", "weight", "in torch"]]
    weights = {"channel": "per channel", "shape": "per feature", "scalar": "one", "none": "none"}
    for name, norm in NORMS.items():
        eps = "machine epsilon of the statistics' dtype" if norm.eps is None else f"{norm.eps:g}"
        theirs = f"{{py:func}}`{norm.torch}`" if norm.torch else "none"
        target = SHOWN_NORMS[name].page.partition("#")[2]
        first = [f"{{ref}}`{name} <{target}>`", SHOWN_NORMS[name].reads]
        rows.append([*first, norm.spread, eps, weights[norm.parameters], theirs])
    return _table(rows)


PARTS = {
    "_static/explorer.js": {"norms": write_explorer},
    "cheat_sheet.md": {"layers": write_layers, "invariances": write_invariances},
    "api/norms.md": {"norms": write_api},
}


def fill(text: str, part: str, content: str) -> str:
    """A page with another content between the marks of a part.

    Raises:
        ValueError: the page does not have the marks once.
    """
    marks = rf"((?:%|//) generated: {part}\n\n?).*?(\n\n?\s*(?:%|//) end)"
    filled, count = re.subn(marks, lambda m: m[1] + content + m[2], text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{part}: {count} pairs of marks; expected one")
    return filled


def write_pages(book: Path = BOOK) -> dict[Path, str]:
    """Each page as the records want it."""
    pages = {}
    for name, parts in PARTS.items():
        text = (book / name).read_text(encoding="utf-8")
        for part, write in parts.items():
            text = fill(text, part, write())
        pages[book / name] = text
    return pages


def main() -> None:
    """Write all pages."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path, text in write_pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
