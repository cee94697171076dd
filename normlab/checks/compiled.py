"""A layer that torch.compile was given: checked as it is, and compared once compiled."""

from __future__ import annotations

from typing import Any

import torch

from normlab.checks.comparison import ULPS, Comparison
from normlab.checks.formula import Formula
from normlab.checks.inputs import ORDINARY, make_inputs, observe, oracle
from normlab.checks.probing import ForeignNorm
from normlab.checks.report import Failure, Report, make_failure
from normlab.checks.tolerances import max_error

_CHECK = "compiled"
_FACTOR = 8  # a fused kernel may sum in another order than the layer as it is


def is_compiled(layer: Any) -> bool:
    """Whether it is what torch.compile gives, of a module or a function."""
    return hasattr(layer, "_orig_mod") or hasattr(layer, "_torchdynamo_orig_callable")


def check_compiled(subject: ForeignNorm, formula: Formula, report: Report) -> None:
    """Values and gradients of the compiled layer, for one input of two ranks.

    All other checks ran without compilation, since each shape, dtype and mode is compiled anew.
    """
    report.checks.append(_CHECK)
    by_rank = {len(case.shape): case for case in subject.cases}
    for case in list(by_rank.values())[:2]:
        inputs = make_inputs(case, ORDINARY, torch.float32, seed=0)
        report.cases += 1
        try:
            with torch.compiler.set_stance("default"):
                got = observe(subject, inputs)
        except Exception as error:  # a compiler may fail in any way
            text = f"raises once compiled: {type(error).__name__}: {error}"
            report.failures.append(Failure(_CHECK, text, "compiled_raises"))
            return
        comparison = Comparison.of(ORDINARY, inputs, got, formula.like)
        expected = oracle(formula, inputs)
        for key in ("y", "dx", "dweight", "dbias"):
            want, value = getattr(expected, key), getattr(got, key)
            if want is None or value is None:
                continue
            error_ = max_error(value.reshape(want.shape), want)
            if not error_ <= _FACTOR * comparison.budget(key, want, ulps=ULPS):
                text = f"the compiled layer gives another {key} than the layer as it is"
                report.failures.append(make_failure(_CHECK, text, "compiled_differs"))
                return
