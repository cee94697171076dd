"""How fast the norms are here: `python -m normlab.book.bench`; see `--help`.

Ratios to torch are paired and of processor time; on a GPU (`--device cuda`) they are of the wall's
until it is done. Every variant is checked against float64 before it is timed, and a run whose
control is off by more than 10 % concludes nothing. With `--peers`, the norms of Liger Kernel are
timed on a GPU, too, where it is installed.
"""

from normlab.book.bench.cases import Case, count_peak, count_saved
from normlab.book.bench.reporting import Report, Row, run_case
from normlab.book.bench.timing import Ratio, control_error, measure, paired_ratio
from normlab.book.bench.variants import make_variants

__all__ = [
    "Case",
    "Ratio",
    "Report",
    "Row",
    "control_error",
    "count_peak",
    "count_saved",
    "make_variants",
    "measure",
    "paired_ratio",
    "run_case",
]
