"""Wrong norms that a test suite must reject, each in one way that its name says."""

from normlab.checks.mutants.collection import (
    BATCH_NORM_MUTANTS,
    LAYER_NORM_MUTANTS,
    find_mutant,
    mutants,
)
from normlab.checks.mutants.mutant import Mutant

__all__ = ["BATCH_NORM_MUTANTS", "LAYER_NORM_MUTANTS", "Mutant", "find_mutant", "mutants"]
