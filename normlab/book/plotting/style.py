"""One look for every figure: white panels, large type, one color and line style per norm.

Colors are those of Okabe and Ito, which stay apart for color-blind readers; line styles and
markers carry the same distinction where a figure is printed in gray.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import matplotlib
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from normlab.book.plotting.norms import SHOWN_NORMS, LineStyle
from normlab.book.plotting.png import store_compactly


class NormStyle(TypedDict):
    """How one norm is drawn; unpacks into `Axes.plot`."""

    color: str
    linestyle: LineStyle
    label: str


class GroupStyle(NormStyle):
    """How one group of an experiment is drawn, with its marker."""

    marker: str


_NORM_STYLES: dict[str, GroupStyle] = {
    "none": GroupStyle(color="#4d4d4d", linestyle=(0, (1.0, 1.2)), label="no norm", marker="P"),
    **{
        name: GroupStyle(color=n.color, linestyle=n.linestyle, label=n.label, marker=n.marker)
        for name, n in SHOWN_NORMS.items()
    },
}
NORM_COLORS: dict[str, str] = {name: style["color"] for name, style in _NORM_STYLES.items()}

# Where the norm of a residual block stands; the same in every chapter.
PLACEMENT_STYLES: dict[str, GroupStyle] = {
    "post_norm": GroupStyle(color="#886633", linestyle="solid", label="Post-LN", marker="p"),
    "pre_norm": GroupStyle(color="#0000aa", linestyle=(0, (5.0, 1.5)), label="Pre-LN", marker="8"),
    "deep_norm": GroupStyle(
        color="#ff4477", linestyle=(0, (6.0, 1.5, 1.2, 1.5)), label="DeepNorm", marker="H"
    ),
}
# Other groups wear no norm's and no placement's color: a color means one thing in the whole book.
_OTHER_COLORS = ("#332288", "#56b4e9", "#5d2e00", "#a020f0", "#000000", "#8bb95d")
_OTHER_LINESTYLES: tuple[LineStyle, ...] = (
    "solid",
    (0, (5.0, 1.5)),
    (0, (2.0, 1.2)),
    (0, (6.0, 1.5, 1.2, 1.5)),
    (0, (1.0, 1.0)),
    (0, (8.0, 1.5, 2.0, 1.5)),
)
_OTHER_MARKERS = ("h", "<", ">", "*", "X", "d")

_STYLE: dict[str, Any] = {
    "figure.figsize": (6.4, 3.6),
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.transparent": False,
    "savefig.dpi": "figure",
    "axes.facecolor": "white",
    "axes.edgecolor": "#333333",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelsize": 12,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=_OTHER_COLORS),
    "font.size": 12,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "legend.fontsize": 11,
    "legend.frameon": True,
    "legend.framealpha": 0.85,
    "legend.edgecolor": "none",
    "legend.handlelength": 2.6,
    "lines.linewidth": 2.0,
    "lines.markersize": 6.0,
    "lines.scale_dashes": False,
    "text.color": "#111111",
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
}


def use_style() -> None:
    """Set matplotlib's defaults to the look of the book.

    White panels stay readable in a dark page; type of 11 to 12 points in a figure of 6.4
    inches stays readable on a phone. In a notebook, figures are stored with a palette, which
    takes a fraction of the bytes.
    """
    matplotlib.rcParams.update(_STYLE)  # type: ignore[arg-type]
    store_compactly()


def norm_style(name: str) -> NormStyle:
    """Color, line style and label of one norm.

    Raises:
        ValueError: `name` is no norm of this book.
    """
    if name not in _NORM_STYLES:
        known = ", ".join(map(repr, _NORM_STYLES))
        raise ValueError(f"name: got {name!r}; expected one of {known}")
    style = _NORM_STYLES[name]
    return NormStyle(color=style["color"], linestyle=style["linestyle"], label=style["label"])


def group_styles(
    names: Iterable[str], overrides: Mapping[str, Mapping[str, object]] | None = None
) -> dict[str, GroupStyle]:
    """Styles of the groups of an experiment: norms and placements by name, others by order.

    `overrides` says for a group what to change, for example `{"post-LN": {"color":
    NORM_COLORS["layer_norm"]}}`.

    Raises:
        ValueError: more than six groups of other names, an override for a group that is not
            there, or an override of something other than color, linestyle, label and marker.
    """
    names = list(names)
    overrides = dict(overrides or {})
    for group, change in overrides.items():
        if group not in names:
            raise ValueError(f"styles: {group!r} is no group; the groups are {', '.join(names)}")
        unknown = set(change) - set(GroupStyle.__annotations__) - set(NormStyle.__annotations__)
        if unknown:
            raise ValueError(
                f"styles: {group!r} changes {', '.join(sorted(unknown))}; "
                "expected color, linestyle, label or marker"
            )
    known = _NORM_STYLES | PLACEMENT_STYLES
    others = [name for name in names if name not in known]
    if len(others) > len(_OTHER_COLORS):
        raise ValueError(
            f"groups: {len(others)} that are no norm or placement; at most {len(_OTHER_COLORS)} "
            "stay apart in one panel, so split the figure"
        )
    styles: dict[str, GroupStyle] = {}
    for name in names:
        if name in known:
            style = known[name].copy()
        else:
            i = others.index(name)
            style = GroupStyle(
                color=_OTHER_COLORS[i],
                linestyle=_OTHER_LINESTYLES[i],
                label=name,
                marker=_OTHER_MARKERS[i],
            )
        style.update(overrides.get(name, {}))  # type: ignore[typeddict-item]
        styles[name] = style
    return styles


def make_axes(
    n: int = 1,
    *,
    columns: int | None = None,
    width: float = 6.4,
    height: float | None = None,
    share_x: bool = False,
    share_y: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Make a figure with `n` panels, in rows of `columns`, read left to right, and give both.

    Sizes are in inches: at a width of 6.4 the type has its intended size, and the height is by
    default 3.6 for one row and 3.0 for each of several.

    Raises:
        ValueError: `n` or `columns` is below one.
    """
    # Imported here: pyplot is needed to show the figure in a notebook, and by nothing else.
    from matplotlib import pyplot as plt

    columns = min(n, 2) if columns is None else columns
    if n < 1 or columns < 1:
        raise ValueError(f"n, columns: got {n}, {columns}; expected at least 1 each")
    rows = -(-n // columns)
    if height is None:
        height = 3.6 if rows == 1 else 3.0 * rows
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(width, height),
        sharex=share_x,
        sharey=share_y,
        squeeze=False,
        layout="constrained",
    )
    axes: Sequence[Axes] = list(grid.flat)
    for unused in axes[n:]:
        unused.remove()
    return figure, list(axes[:n])
