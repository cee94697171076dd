"""Draws on given axes and returns them; never trains.

`import normlab` does not import this package, so the package works without matplotlib's start-up
time. Only :func:`make_axes` and :func:`make_family_figure` create figures. A group or a sample that
is named as a norm wears the color, the line style and the marker of that norm; `styles` changes
that of a group, as in :func:`group_styles`.
"""

from normlab.book.plotting.blocks import plot_block, plot_placement
from normlab.book.plotting.curves import plot_curves, plot_sweep
from normlab.book.plotting.descent import plot_descent
from normlab.book.plotting.devices import plot_division
from normlab.book.plotting.diagrams import make_family_figure, plot_shared_cells
from normlab.book.plotting.dots import plot_clouds, plot_moved, plot_rows
from normlab.book.plotting.labels import share_legend, write_legend
from normlab.book.plotting.matrices import plot_counts, plot_incidence, plot_matrix
from normlab.book.plotting.planes import plot_plane
from normlab.book.plotting.speed import plot_launches, plot_percents, plot_roofline
from normlab.book.plotting.style import (
    NORM_COLORS,
    PLACEMENT_STYLES,
    group_styles,
    make_axes,
    norm_style,
    use_style,
)

__all__ = [
    "NORM_COLORS",
    "PLACEMENT_STYLES",
    "group_styles",
    "make_axes",
    "make_family_figure",
    "norm_style",
    "plot_block",
    "plot_clouds",
    "plot_counts",
    "plot_curves",
    "plot_descent",
    "plot_division",
    "plot_incidence",
    "plot_launches",
    "plot_matrix",
    "plot_moved",
    "plot_percents",
    "plot_placement",
    "plot_plane",
    "plot_roofline",
    "plot_rows",
    "plot_shared_cells",
    "plot_sweep",
    "share_legend",
    "use_style",
    "write_legend",
]
