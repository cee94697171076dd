"""One call of the layer beside torch's and beside the formula, and how far apart they may be."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.checks.candidates import Diagnosis
from normlab.checks.diagnosis import Evidence
from normlab.checks.formula import Formula
from normlab.checks.inputs import (
    Inputs,
    Outcome,
    Scale,
    formula_for,
    oracle,
    torch_baseline,
    torch_formula,
)
from normlab.checks.report import Failure, make_failure
from normlab.checks.tolerances import error_budget, max_error

ULPS = 32  # a few roundings per operation, in any order of summation, for up to 1e3 terms


@dataclass
class Comparison:
    """One call."""

    scale: Scale  #: of the input
    inputs: Inputs
    got: Outcome  #: what the layer gave
    theirs: Outcome  #: what torch gave, with its own conventions
    right: Outcome  #: torch's conventions in float64: its error is `theirs` minus this

    @classmethod
    def of(
        cls, scale: Scale, inputs: Inputs, got: Outcome, like: str, *, backward: bool = True
    ) -> Comparison:
        """What the layer gave, beside torch's norm of that name."""
        theirs = torch_baseline(like, inputs, backward=backward)
        right = oracle(torch_formula(like), inputs, backward=backward)
        return cls(scale, inputs, got, theirs, right)

    def budget(self, key: str, expected: Tensor, *, ulps: int) -> float:
        """Largest error allowed to one of the layer's results."""
        torch_error = max_error(getattr(self.theirs, key), getattr(self.right, key))
        return error_budget(
            expected, self.inputs.x.dtype, torch_error, factor=self.scale.factor, ulps=ulps
        )

    def evidence(self, formula: Formula, got: Tensor, budget: float) -> Evidence:
        """This call, for a diagnosis."""
        shaped, dy = formula_for(formula, self.inputs.case), self.inputs.dy.double()
        return Evidence(shaped, *self.inputs.to(torch.float64), got.double(), budget, dy)


def excess_failure(check: str, diagnosis: Diagnosis, ratio: float, inputs: int = 1) -> Failure:
    """A failure with the size of its error, in units of what is allowed."""
    sentence = f"{diagnosis.sentence} (error {ratio:.1e} times the allowed)"
    return dataclasses.replace(make_failure(check, sentence, diagnosis.mistake), inputs=inputs)
