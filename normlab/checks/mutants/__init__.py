"""Wrong norms that a test suite must reject, each in one way that its name says."""

from normlab.checks.mutants.batch import BATCH_NORM_MUTANTS
from normlab.checks.mutants.catalog import Exhibit, exhibits
from normlab.checks.mutants.layer import LAYER_NORM_MUTANTS

__all__ = ["BATCH_NORM_MUTANTS", "LAYER_NORM_MUTANTS", "Exhibit", "exhibits"]
