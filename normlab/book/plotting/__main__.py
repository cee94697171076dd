"""Write the picture of the family: `python -m normlab.book.plotting OUT.png`."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

from normlab.book.plotting.diagrams import make_family_figure
from normlab.book.plotting.png import encode_png
from normlab.book.plotting.style import use_style


def main() -> None:
    """Write the figure "which cells share a mean" as a PNG with a white panel."""
    parser = argparse.ArgumentParser("python -m normlab.book.plotting", description=main.__doc__)
    parser.add_argument("out", help="file to write, OUT.png")
    arguments = parser.parse_args()
    matplotlib.use("Agg")
    use_style()
    figure = make_family_figure("channels")
    Path(arguments.out).write_bytes(encode_png(figure, dpi=180))


if __name__ == "__main__":
    main()
