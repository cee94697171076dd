"""Checks that tests, notebooks and readers call: is this norm right, and if not, what is wrong?"""

from normlab.checks.conformance import check_layer
from normlab.checks.gradients import compare_backwards
from normlab.checks.mutants import BATCH_NORM_MUTANTS, LAYER_NORM_MUTANTS
from normlab.checks.report import CheckFailed, Failure, Report
from normlab.checks.residual import check_deep_norm_init, check_residual
from normlab.checks.tolerances import error_budget, max_error, ulp
from normlab.norms import CONVENTIONS

__all__ = [
    "BATCH_NORM_MUTANTS",
    "CONVENTIONS",
    "LAYER_NORM_MUTANTS",
    "CheckFailed",
    "Failure",
    "Report",
    "check_deep_norm_init",
    "check_layer",
    "check_residual",
    "compare_backwards",
    "error_budget",
    "max_error",
    "ulp",
]
