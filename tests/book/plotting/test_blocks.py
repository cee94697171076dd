"""The drawing of a placement has its norms where the block computes them."""

from __future__ import annotations

import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from normlab.book.plotting import PLACEMENT_STYLES, plot_placement


def centers(ax: Axes, text: str) -> list[tuple[float, float]]:
    boxes = [p for p in ax.patches if isinstance(p, FancyBboxPatch) and p.get_gid() == text]
    return [(b.get_x() + b.get_width() / 2, b.get_y() + b.get_height() / 2) for b in boxes]


@pytest.mark.parametrize("placement", PLACEMENT_STYLES)
def test_norms_stand_where_the_block_has_them(placement: str) -> None:
    figure, ax = plt.subplots()
    assert plot_placement(ax, placement) is ax  # type: ignore[arg-type]
    ((branch, attention),) = centers(ax, "attention")
    ((_, feed_forward),) = centers(ax, "feed-\nforward")
    pluses = sorted(t.get_position() for t in ax.texts if t.get_text() == "+")
    norms = centers(ax, "norm")
    assert attention < pluses[0][1] < feed_forward < pluses[1][1]
    if placement == "pre_norm":  # two in the branches, one behind the last sum
        assert [x == branch for x, _ in norms] == [True, True, False]
        assert norms[0][1] < attention < norms[1][1] < feed_forward < pluses[1][1] < norms[2][1]
    else:
        assert [x for x, _ in norms] == [x for x, _ in pluses]
        assert pluses[0][1] < norms[0][1] < feed_forward < pluses[1][1] < norms[1][1]
    assert PLACEMENT_STYLES[placement]["label"] in ax.get_title()
    plt.close(figure)


def test_the_constants_belong_to_deep_norm_only() -> None:
    figure, axes = plt.subplots(1, 3)
    for ax, placement in zip(axes, PLACEMENT_STYLES, strict=True):
        plot_placement(ax, placement)  # type: ignore[arg-type]
        texts = [t.get_text() for t in ax.texts]
        wanted = 2 if placement == "deep_norm" else 0
        assert sum("alpha" in t for t in texts) == sum("beta" in t for t in texts) == wanted
        assert ("alpha" in ax.get_title()) == (placement == "deep_norm")
    plt.close(figure)


def test_another_placement_is_refused() -> None:
    figure, ax = plt.subplots()
    with pytest.raises(ValueError, match="placement: got 'sub_norm'; expected one of 'post_norm'"):
        plot_placement(ax, "sub_norm")  # type: ignore[arg-type]
    plt.close(figure)
