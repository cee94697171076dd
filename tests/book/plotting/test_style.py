from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import colors
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from normlab.book import plotting
from normlab.book.plotting.style import _OTHER_COLORS
from normlab.norms import NORMS

# Machado, Oliveira and Fernandes (2009): how linear RGB looks to a dichromat.
VISION = {
    "full": np.eye(3),
    "deuteranopia": np.array(
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]
    ),
    "protanopia": np.array(
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
    ),
}


def as_seen(color: str, vision: str) -> np.ndarray:
    """CIE L*a*b* of a color, after the loss of one kind of cone."""
    rgb = np.array(colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(VISION[vision] @ linear, 0, 1)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ linear / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_no_two_colors_of_a_figure_look_alike(vision: str) -> None:
    placements = [style["color"] for style in plotting.PLACEMENT_STYLES.values()]
    palette = [*plotting.NORM_COLORS.values(), *placements, *_OTHER_COLORS]
    for one, other in itertools.combinations(palette, 2):
        # 2.3 is just noticeable; 12 is told apart in thin lines.
        assert np.linalg.norm(as_seen(one, vision) - as_seen(other, vision)) > 12, (one, other)


def test_every_norm_has_a_color_a_line_style_and_a_marker_of_its_own() -> None:
    assert set(plotting.NORM_COLORS) == {"none", *NORMS}
    styles = plotting.group_styles(plotting.NORM_COLORS)
    for part in ("color", "linestyle", "marker"):
        assert len({str(style[part]) for style in styles.values()}) == len(styles)


def test_norm_style_unpacks_into_plot(ax: Any) -> None:
    (line,) = ax.plot([0, 1], [0, 1], **plotting.norm_style("group_norm"))
    assert line.get_color() == plotting.NORM_COLORS["group_norm"]
    assert line.get_label() == "group norm"


def test_norm_style_names_the_norms_it_knows() -> None:
    with pytest.raises(ValueError, match=r"'batchnorm'.*'batch_norm'"):
        plotting.norm_style("batchnorm")


def test_a_placement_wears_its_own_style_beside_any_group() -> None:
    alone = plotting.group_styles(["pre_norm"])["pre_norm"]
    beside = plotting.group_styles(["layer_norm", "alpha only", "pre_norm", "post_norm"])
    assert beside["pre_norm"] == alone == plotting.PLACEMENT_STYLES["pre_norm"]
    assert beside["pre_norm"]["label"] == "Pre-LN"
    assert beside["alpha only"]["color"] == _OTHER_COLORS[0]


def test_other_groups_never_wear_a_norms_color() -> None:
    groups = ["layer_norm", "pre-LN", "post-LN", "DeepNorm"]
    styles = plotting.group_styles(groups)
    assert styles["layer_norm"]["color"] == plotting.NORM_COLORS["layer_norm"]
    others = {styles[group]["color"] for group in groups[1:]}
    assert len(others) == 3
    assert not others & set(plotting.NORM_COLORS.values())


def test_overrides_change_what_they_name() -> None:
    styles = plotting.group_styles(["a", "b"], {"a": {"color": "#123456", "label": "group a"}})
    assert styles["a"]["color"] == "#123456"
    assert styles["a"]["label"] == "group a"
    assert styles["a"]["linestyle"] == plotting.group_styles(["a"])["a"]["linestyle"]
    assert styles["b"] == plotting.group_styles(["a", "b"])["b"]


@pytest.mark.parametrize(
    ("names", "overrides", "message"),
    [
        (["a"], {"b": {"color": "red"}}, "'b' is no group"),
        (["a"], {"a": {"colour": "red"}}, "colour"),
        (list("abcdefg"), {}, "at most 6"),
    ],
)
def test_group_styles_refuses(
    names: list[str], overrides: dict[str, dict[str, object]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plotting.group_styles(names, overrides)


def test_use_style_gives_white_panels_and_legible_type() -> None:
    with matplotlib.rc_context():
        plotting.use_style()
        assert matplotlib.rcParams["figure.facecolor"] == "white"
        assert matplotlib.rcParams["savefig.facecolor"] == "white"
        assert not matplotlib.rcParams["savefig.transparent"]
        assert list(matplotlib.rcParams["figure.figsize"]) == [6.4, 3.6]
        for kind in ("font.size", "axes.labelsize", "xtick.labelsize", "legend.fontsize"):
            assert matplotlib.rcParams[kind] >= 10


@pytest.mark.parametrize(
    ("n", "columns", "grid"), [(1, None, (1, 1)), (5, 3, (2, 3)), (4, None, (2, 2))]
)
def test_make_axes(n: int, columns: int | None, grid: tuple[int, int]) -> None:
    figure, axes = plotting.make_axes(n, columns=columns)
    specs = [ax.get_subplotspec() for ax in axes]
    plt.close(figure)
    assert axes == figure.axes
    assert len(axes) == n
    for spec in specs:
        assert spec is not None
        assert spec.get_gridspec().get_geometry() == grid


def test_panels_share_one_legend() -> None:
    figure, axes = plotting.make_axes(2)
    for ax in axes:
        ax.plot([0, 1], label="a")
        ax.legend()
    plotting.share_legend(axes)
    assert [ax.get_legend() for ax in axes] == [None, None]
    ((text,),) = [legend.get_texts() for legend in figure.legends]
    assert text.get_text() == "a"
    plt.close(figure)


def test_make_axes_refuses_no_panel() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        plotting.make_axes(0)


def test_a_legend_lies_below_the_panel() -> None:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.add_subplot()
    groups = {"none": [[0.0, 1.0]], "layer_norm": [[0.0, 2.0]]}
    plotting.plot_curves(ax, [0, 1], groups, labels="legend")
    figure.draw_without_rendering()
    legend = ax.get_legend()
    assert legend is not None
    assert legend.get_window_extent().y1 < ax.xaxis.label.get_window_extent().y0
    assert legend.get_window_extent().y0 >= 0


def test_importing_normlab_loads_no_matplotlib() -> None:
    program = "import sys, normlab; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_exports_exist_and_shadow_no_module() -> None:
    modules = {"style", "diagrams", "distributions", "curves", "labels", "matrices", "png"}
    for name in plotting.__all__:
        assert hasattr(plotting, name)
    assert not modules & set(plotting.__all__)
