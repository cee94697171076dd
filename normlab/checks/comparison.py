"""One call of the layer beside torch's and beside the formula, and how far apart they may be."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.checks.candidates import Diagnosis
from normlab.checks.diagnosis import Evidence
from normlab.checks.formula import Formula
from normlab.checks.inputs import Inputs, Outcome, Scale, formula_for
from normlab.checks.mistakes import make_failure
from normlab.checks.report import Failure
from normlab.checks.tolerances import error_budget, max_error

__all__ = ["ORDINARY", "SHIFTED", "SMALL", "ULPS", "Comparison", "excess_failure"]

ULPS = 32  # a few roundings per operation, in any order of summation, for up to 1e3 terms
ORDINARY = Scale("ordinary input", rms=1.0, mean=0.0, factor=8.0)
SMALL = Scale("small input", rms=3e-3, mean=0.0, factor=8.0)
# a mean rounded to float32 costs torch as much as anybody; mean(x²) - mean(x)² costs a
# thousand times more
SHIFTED = Scale("shifted input", rms=1.0, mean=1e3, factor=32.0)


@dataclass
class Comparison:
    """One call in float32.

    Attributes:
        scale: of the input.
        inputs: what the layer was given.
        got: what the layer gave.
        theirs: what torch gave, with its own conventions.
        right: torch's conventions in float64: its error is `theirs` minus this.
    """

    scale: Scale
    inputs: Inputs
    got: Outcome
    theirs: Outcome
    right: Outcome

    def budget(self, key: str, expected: Tensor, *, ulps: int) -> float:
        """Largest error allowed to one of the layer's results."""
        torch_error = max_error(getattr(self.theirs, key), getattr(self.right, key))
        return error_budget(
            expected, torch.float32, torch_error, factor=self.scale.factor, ulps=ulps
        )

    def evidence(self, formula: Formula, got: Tensor, budget: float) -> Evidence:
        """This call, for a diagnosis."""
        t = self.inputs
        weight, bias = (None if p is None else p.double() for p in (t.weight, t.bias))
        shaped = formula_for(formula, t.case)
        return Evidence(shaped, t.x.double(), weight, bias, got.double(), budget, t.dy.double())


def excess_failure(check: str, diagnosis: Diagnosis, ratio: float) -> Failure:
    """A failure with the size of its error, in units of what is allowed."""
    sentence = f"{diagnosis.sentence} (error {ratio:.1e} times the allowed)"
    return make_failure(check, sentence, diagnosis.mistake)
