"""The correction towards the running statistics: its values, its bounds, and what is no gradient.

The other checks leave nothing to correct: r_max is 1 and d_max is 0 there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from normlab.checks.formula import Formula
from normlab.checks.inputs import BATCH, ORDINARY, SMALL, Inputs, formula_for, make_inputs
from normlab.checks.report import Failure, Report, make_failure
from normlab.checks.running import close
from normlab.checks.tolerances import max_error
from normlab.norms import NORMS
from normlab.probing.functions import NO_CORRECTION
from normlab.probing.modules import ForeignNorm

_CHECK = "correction"
_BEFORE = (ORDINARY.name, SMALL.name, "input unchanged")
_ALLOWED = 1e-4  # the values were checked elsewhere; a form such as (x - mean) / root * r rounds


@dataclasses.dataclass(frozen=True)
class _Probe:
    """Running statistics, the same for all channels, and bounds of the correction."""

    mean: float
    var: float
    bounds: tuple[float, float]

    def running(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """One of each for every channel; they differ a little."""
        steps = torch.linspace(0.9, 1.1, inputs.case.parameter_shape[0])
        return self.mean * steps, self.var * steps


# the batch has mean 0.8 and deviation 1.3: within both bounds, above both, below both
_WITHIN = _Probe(0.5, 1.2, (50.0, 50.0))
_PROBES = (_WITHIN, _Probe(-1.0, 0.1, (1.5, 0.7)), _Probe(6.0, 16.0, (1.5, 0.7)))


@dataclasses.dataclass(frozen=True)
class _Correction:
    """How r and d come about; all but the defaults are mistakes."""

    upper: bool = True
    lower: bool = True
    shift_bound: bool = True
    ignored: bool = False
    inverted: bool = False
    unscaled: bool = False
    negated: bool = False
    squared: bool = False
    after_affine: bool = False
    detach_r: bool = True
    detach_d: bool = True

    def __call__(
        self,
        formula: Formula,
        tensors: tuple[Tensor, Tensor | None, Tensor | None],
        running: tuple[Tensor, Tensor],
        bounds: tuple[float, float],
    ) -> Tensor:
        """The output in training, in float64."""
        x, weight, bias = tensors
        mean, var, count = formula.statistics(x)
        center, spread = (t.double().view(mean.shape) for t in running)
        root = formula.denominator(var, count)
        running_root = formula.denominator(spread, 1)
        r = running_root / root if self.inverted else root / running_root
        r = r.square() if self.squared else r
        r = r.clamp_max(bounds[0]) if self.upper else r
        r = r.clamp_min(1 / bounds[0]) if self.lower else r
        d = (center - mean) if self.negated else (mean - center)
        d = d if self.unscaled else d / running_root
        d = d.clamp(-bounds[1], bounds[1]) if self.shift_bound else d
        r, d = (r.detach() if self.detach_r else r), (d.detach() if self.detach_d else d)
        if self.ignored:
            r, d = torch.ones_like(r), torch.zeros_like(d)
        if self.after_affine:
            return formula(x, weight, bias) * r + d
        return formula.affine(x, formula.normalize(x) * r + d, weight, bias)


_RIGHT = _Correction()
# the mistake, in words, and the r and d that it gives
_READINGS: tuple[tuple[str, str, _Correction], ...] = (
    ("correction_ignored", "the output is not corrected by r and d", _Correction(ignored=True)),
    ("r_unclamped", "r is not clamped", _Correction(upper=False, lower=False)),
    ("r_unclamped", "r has no lower bound 1 / r_max", _Correction(lower=False)),
    ("r_unclamped", "r has no upper bound r_max", _Correction(upper=False)),
    ("r_inverted", "r is the running root over that of the batch", _Correction(inverted=True)),
    ("r_squared", "r is a ratio of variances", _Correction(squared=True)),
    ("d_unclamped", "d is not clamped", _Correction(shift_bound=False)),
    ("d_unscaled", "d is not divided by the running root", _Correction(unscaled=True)),
    ("d_negated", "d has the wrong sign", _Correction(negated=True)),
    (
        "correction_after_affine",
        "r and d are applied behind weight and bias",
        _Correction(after_affine=True),
    ),
)
_ATTACHED = (
    _Correction(detach_r=False),
    _Correction(detach_d=False),
    _Correction(detach_r=False, detach_d=False),
)


def check_no_correction(subject: ForeignNorm, formula: Formula, report: Report) -> bool:
    """With r_max 1 and d_max 0 the output in training knows no running statistics.

    Returns:
        whether the other checks, which need this, make sense.

    Raises:
        ValueError: it does know them, and has no such bounds to be set.
    """
    if not NORMS[subject.like].has_correction:
        return True
    inputs = make_inputs(subject.cases[0], BATCH, torch.float32, seed=90)
    try:
        with torch.no_grad():
            near, far = (_call(subject, inputs, p, NO_CORRECTION) for p in _PROBES[:2])
    except Exception:  # a layer that cannot be called is reported by the next check
        return True
    if near[0].shape != far[0].shape or close(near[0], far[0]):
        return True
    if not subject.has_bounds:
        raise ValueError(
            "layer: could not be tested: it corrects towards the running statistics and takes no "
            "bounds r_max and d_max, with which the other checks switch this off. Give it "
            "arguments, or a module attributes, of these names"
        )
    report.checks.append(_CHECK)
    report.cases += 1
    shaped = formula_for(formula, inputs.case)
    named = _name(shaped, inputs, [(_PROBES[0], near), (_PROBES[1], far)], NO_CORRECTION)
    name, said = named or ("correction", "the output depends on the running statistics")
    report.failures.append(make_failure(_CHECK, f"with r_max 1 and d_max 0 {said}", name))
    report.notes.append("all other checks, because the correction cannot be switched off")
    return False


def check_correction(subject: ForeignNorm, formula: Formula, report: Report) -> None:
    """In training x_hat becomes x_hat r + d, r and d being constants within their bounds."""
    if not NORMS[subject.like].has_correction:
        return
    if any(f.check in _BEFORE for f in report.failures):
        report.notes.append("the correction, because the output without it is wrong")
        return
    inputs = make_inputs(subject.cases[0], BATCH, torch.float32, seed=91)
    shaped = formula_for(formula, inputs.case)
    report.checks.append(_CHECK)
    report.cases += len(_PROBES)
    try:
        with torch.no_grad():
            found = [(p, _call(subject, inputs, p, p.bounds)) for p in _PROBES]
        failure = _compare_values(shaped, inputs, found)
        known = any(f.check.startswith("gradient") for f in report.failures)
        if failure is None and subject.scope.backward and not known:
            report.checks.append(f"gradient, {_CHECK}")
            failure = _compare_gradients(subject, shaped, inputs)
    except Exception as error:  # the layer under test may fail in any way
        text = f"raises when it corrects: {type(error).__name__}: {error}"
        failure = Failure(_CHECK, text, "correction_raises")
    report.failures += [failure] if failure else []


_Called = tuple[Tensor, tuple[Tensor, Tensor]]


def _call(
    subject: ForeignNorm, inputs: Inputs, probe: _Probe, bounds: tuple[float, float]
) -> _Called:
    """The output in training, and the running statistics behind it."""
    running = probe.running(inputs)
    case, x, weight, bias = inputs.case, inputs.x.clone(), inputs.weight, inputs.bias
    y, _ = subject(case, x, weight, bias, running=running, momentum=0.3, bounds=bounds)
    return y, running


def _named_readings() -> Iterator[tuple[str, str, _Correction, bool]]:
    for name, said, reading in _READINGS:
        yield name, said, reading, False
    text = "the running statistics are updated before they are used"
    yield "running_before_use", text, _RIGHT, True


def _name(
    formula: Formula,
    inputs: Inputs,
    found: list[tuple[_Probe, _Called]],
    bounds: tuple[float, float] | None = None,
) -> tuple[str, str] | None:
    """The mistake that explains every output."""
    tensors = inputs.to(torch.float64)
    for name, said, reading, later in _named_readings():
        expected = [
            reading(formula, tensors, after if later else p.running(inputs), bounds or p.bounds)
            for p, (_, after) in found
        ]
        if all(close(y, e) for e, (_, (y, _)) in zip(expected, found, strict=True)):
            return name, said
    return None


def _compare_values(
    formula: Formula, inputs: Inputs, found: list[tuple[_Probe, _Called]]
) -> Failure | None:
    tensors = inputs.to(torch.float64)
    errors = []
    for probe, (y, _) in found:
        expected = _RIGHT(formula, tensors, probe.running(inputs), probe.bounds)
        errors.append(max_error(y, expected) / float(expected.abs().max()))
    if not max(errors) > _ALLOWED:
        return None
    text = f"the corrected output is off by {max(errors):.1e} of its largest entry"
    name, said = _name(formula, inputs, found) or ("correction", text)
    return make_failure(_CHECK, said, name)


def _compare_gradients(subject: ForeignNorm, formula: Formula, inputs: Inputs) -> Failure | None:
    x, weight, bias = inputs.leaves(torch.float32)
    running, bounds = _WITHIN.running(inputs), _WITHIN.bounds
    y, _ = subject(inputs.case, x, weight, bias, running=running, bounds=bounds)
    (got,) = torch.autograd.grad(y, x, inputs.dy, allow_unused=True)

    def expect(reading: _Correction) -> Tensor:
        tensors = inputs.leaves(torch.float64)
        right = reading(formula, tensors, _WITHIN.running(inputs), bounds)
        return torch.autograd.grad(right, tensors[0], inputs.dy.double())[0]

    if got is not None and close(got, expect(_RIGHT)):
        return None
    text = "the gradient by the input is wrong where the output is corrected"
    if got is not None and any(close(got, expect(reading)) for reading in _ATTACHED):
        text = "the gradient flows through r and d, which are constants"
        return make_failure(f"gradient, {_CHECK}", text, "correction_attached")
    return Failure(f"gradient, {_CHECK}", text, "correction_gradient")
