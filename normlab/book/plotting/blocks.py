"""Residual blocks as drawings: where the norms stand, and what DeepNorm adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch

from normlab.book.plotting.style import PLACEMENT_STYLES
from normlab.residual.tracing import Step, has_branch, write_formula

Placement = Literal["post_norm", "pre_norm", "deep_norm"]

_FORMULAS: dict[str, str] = {
    "post_norm": r"$\mathrm{LN}(x + F(x))$",
    "pre_norm": r"$x + F(\mathrm{LN}(x))$",
    "deep_norm": r"$\mathrm{LN}(\alpha\,x + F(x))$",
}
_SKIP, _BRANCH = 0.0, 1.15  # where the two ways run, left and right
_BLOCK = 3.1  # height of one residual block
_DARK = "#333333"
_COLOR = "#0072b2"  # of the norms and the skip of a block that is drawn from its steps


def plot_placement(ax: Axes, placement: Placement) -> Axes:
    """Draw attention and feed-forward network of one layer, read from the bottom to the top.

    The way on the left is the skip, the way on the right the branch; the norms are filled. Pre-LN
    ends with the norm that closes the whole stack.

    Raises:
        ValueError: there is no such placement.

    Source:
        vaswani2017attention, Figure 1; xiong2020layer, Figure 1; wang2022deepnet, Figure 2.
    """
    if placement not in _FORMULAS:
        known = ", ".join(map(repr, _FORMULAS))
        raise ValueError(f"placement: got {placement!r}; expected one of {known}")
    color = PLACEMENT_STYLES[placement]["color"]
    _write(ax, _SKIP, -0.75, "x", style="italic")
    _arrow(ax, (_SKIP, -0.55), (_SKIP, 0.1))
    for i, sublayer in enumerate(("attention", "feed-\nforward")):
        _draw_block(ax, i * _BLOCK, placement, sublayer, color)
    top = 2 * _BLOCK
    if placement == "pre_norm":
        _write(ax, _SKIP, top + 0.3, "⋮")
        _box(ax, _SKIP, top + 0.95, "norm", color)
    ax.set(xlim=(-0.85, 2.0), ylim=(-1.0, top + 1.3), aspect="equal")
    ax.axis("off")
    ax.set_title(f"{PLACEMENT_STYLES[placement]['label']}\n{_FORMULAS[placement]}", color=color)
    return ax


def plot_block(ax: Axes, steps: Sequence[Step], *, title: str = "") -> Axes:
    """Draw one residual block from what it did, read from the bottom to the top.

    It looks as in :func:`plot_placement`. Nothing is known here but the steps, from
    :func:`normlab.residual.trace_block`, so the picture is that of the code that ran.

    Raises:
        ValueError: the steps have no sum or several, or no branch.
    """
    sums = [i for i, step in enumerate(steps) if step.kind == "add"]
    if len(sums) != 1 or not has_branch(steps, len(steps) - 1):
        raise ValueError(
            f"steps: got {len(sums)} sums; expected a block with one sum of a skip and a branch"
        )
    skip, branch = sorted(steps[sums[0]].sources, key=lambda i: has_branch(steps, i))
    on_branch = list(_way_to(steps, branch))
    plus = 0.85 * len(on_branch) + 0.75
    top = plus + 0.85 * (len(steps) - 1 - sums[0]) + 0.6
    _write(ax, _SKIP, -0.65, "x", style="italic")
    _arrow(ax, (_SKIP, -0.45), (_SKIP, plus - 0.17), color=_COLOR, lw=3.0)
    ax.plot([_SKIP, _BRANCH, _BRANCH], [0.1, 0.1, plus], color=_DARK, lw=1.3)
    _arrow(ax, (_BRANCH, plus), (_SKIP + 0.17, plus))
    _arrow(ax, (_SKIP, plus + 0.17), (_SKIP, top))
    ax.add_patch(Circle((_SKIP, plus), 0.17, facecolor="white", edgecolor=_DARK, zorder=4))
    _write(ax, _SKIP, plus, "+")
    ways = ((on_branch, _BRANCH, 0.0), (list(_way_to(steps, skip)), _SKIP, 0.0))
    after = list(range(sums[0] + 1, len(steps)))
    for numbers, x, foot in (*ways, (after, _SKIP, plus - 0.05)):
        for height, number in enumerate(numbers, start=1):
            _draw_step(ax, x, foot + 0.85 * height - 0.1, steps[number])
    ax.set(xlim=(-0.85, 2.0), ylim=(-0.9, 4.6), aspect="equal")
    ax.axis("off")
    ax.set_title(f"{title}\n${write_formula(steps)}$".lstrip(), color=_COLOR, fontsize=11)
    return ax


def _way_to(steps: Sequence[Step], number: int) -> Iterator[int]:
    """The steps between the input and one step, which is the last of them."""
    if steps[number].kind != "input":
        (before,) = steps[number].sources
        yield from _way_to(steps, before)
        yield number


def _draw_step(ax: Axes, x: float, y: float, step: Step) -> None:
    if step.kind == "scale":
        _box(ax, x, y, f"× {step.factor:.3g}", "#777777")
    elif step.kind == "norm":
        _box(ax, x, y, "norm", _COLOR)
    else:
        _box(ax, x, y, "branch", None)


def _draw_block(ax: Axes, foot: float, placement: str, sublayer: str, color: str) -> None:
    before = placement == "pre_norm"
    plus = foot + (2.45 if before else 1.65)
    body = foot + (1.6 if before else 0.85)
    ax.plot([_SKIP, _BRANCH, _BRANCH], [foot + 0.1, foot + 0.1, body], color=_DARK, lw=1.3)
    ax.plot([_BRANCH, _BRANCH], [body, plus], color=_DARK, lw=1.3)
    _arrow(ax, (_BRANCH, plus), (_SKIP + 0.17, plus))
    _arrow(ax, (_SKIP, foot + 0.1), (_SKIP, plus - 0.17), color=color, lw=3.0)
    if before:
        _box(ax, _BRANCH, foot + 0.65, "norm", color)
    _box(ax, _BRANCH, body, sublayer, None)
    ax.add_patch(Circle((_SKIP, plus), 0.17, facecolor="white", edgecolor=_DARK, zorder=4))
    _write(ax, _SKIP, plus, "+")
    if placement == "deep_norm":
        _write(ax, _SKIP - 0.45, body, r"$\times\,\alpha$", color=color, size=14)
        _write(ax, _BRANCH + 0.62, body + 0.6, r"$\beta$", color=color, size=14)
    if before:
        _arrow(ax, (_SKIP, plus + 0.17), (_SKIP, foot + _BLOCK + 0.15), color=color, lw=3.0)
    else:
        _arrow(ax, (_SKIP, plus + 0.17), (_SKIP, plus + 0.5))
        _box(ax, _SKIP, plus + 0.75, "norm", color)
        _arrow(ax, (_SKIP, plus + 1.0), (_SKIP, foot + _BLOCK + 0.1))


def _box(ax: Axes, x: float, y: float, text: str, fill: str | None) -> None:
    """A box around its center; filled for a norm, white for a sublayer."""
    half = 0.27 if fill else 0.4
    width = 1.0 if fill else 1.5
    box = FancyBboxPatch(
        (x - width / 2, y - half),
        width,
        2 * half,
        boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=fill or "white",
        edgecolor=fill or _DARK,
        zorder=3,
        gid=text,
    )
    ax.add_patch(box)
    _write(ax, x, y, text, color="white" if fill else _DARK)


def _write(ax: Axes, x: float, y: float, text: str, **options: Any) -> None:
    options = {"color": _DARK, "size": 11, **options}
    ax.text(x, y, text, ha="center", va="center", zorder=5, linespacing=0.95, **options)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], **options: Any) -> None:
    look = {"arrowstyle": "-|>", "color": _DARK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0, **options}
    ax.annotate("", end, start, arrowprops=look, gid="arrow")
