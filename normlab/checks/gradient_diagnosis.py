"""From a wrong gradient to the mistake that explains it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from normlab.checks.changes import gradient
from normlab.checks.diagnosis import Diagnosis
from normlab.checks.inputs import Evidence
from normlab.checks.mistakes import wrong_gradients
from normlab.checks.tolerances import HALF, max_error
from normlab.norms import NORMS


def explain_gradient(e: Evidence) -> Diagnosis:
    """Name the mistake whose formula gives the observed gradient by the input."""
    if not e.got.isfinite().all():
        return Diagnosis(None, "it has entries that are not finite")
    for name, sentence, value in _wrong_gradients(e):
        slack = 1 if e.dtype in HALF else 4
        if max_error(e.got, value) <= min(slack * e.budget, 0.1 * float(value.abs().max())):
            return Diagnosis(name, sentence)
    if float(e.got.abs().max()) == 0:
        return Diagnosis("zero_gradient", "it is zero")
    return _decode(e) or Diagnosis(None, "no known mistake explains it")


def _wrong_gradients(e: Evidence) -> Iterator[tuple[str, str, Tensor]]:
    """Mistake, sentence, and the gradient by the input that it gives."""
    given = *e.inputs.given, e.inputs.dy
    right = gradient(e.formula, *given)
    for mistake in wrong_gradients(e.formula):
        changed = e.formula.replace(**mistake.changes)
        value = (mistake.gradient or gradient)(changed, *given)
        if max_error(value, right) > e.budget:  # else it is right for this call
            yield mistake.name, mistake.sentence(e.formula), value


def _terms(e: Evidence) -> dict[str, Tensor]:
    """The terms that a hand-written backward pass is put together from."""
    f, (x, weight, _) = e.formula, e.inputs.given
    mean, var, count = f.statistics(x)
    view, dims = f.view(x)
    denominator = f.denominator(var, count)
    x_hat = f.numerator(view, mean) / denominator
    g = dy = e.inputs.dy
    if weight is not None:
        g = dy * (f.weight_offset + weight).view(f.parameter_view(x))
    g, dy = g.reshape(view.shape), dy.reshape(view.shape)

    def average(v: Tensor) -> Tensor:
        return v.mean(dims, keepdim=True).expand(view.shape)

    terms = {"direct": g, "mean": average(g), "projection": x_hat * average(g * x_hat)}
    if weight is not None:
        terms |= {
            "direct, no weight": dy,
            "mean, no weight": average(dy),
            "projection, no weight": x_hat * average(dy * x_hat),
        }
    return {name: (t / denominator).reshape(x.shape) for name, t in terms.items()}


def _decode(e: Evidence) -> Diagnosis | None:
    """Write the gradient as a sum of the terms, and say which coefficient is wrong."""
    f = e.formula
    norm = NORMS[f.like]
    ordinary = "mean square", "inside", "root", "n"
    if (norm.spread, f.eps_placement, f.root, f.divisor) != ordinary:
        return None
    terms = _terms(e)
    expected = {"direct": 1.0, "mean": -1.0 if norm.centered else 0.0, "projection": -1.0}
    matrix = torch.stack([t.flatten() for t in terms.values()], 1)
    if matrix.shape[0] < 2 * matrix.shape[1]:
        return None
    solved = torch.linalg.lstsq(matrix, e.got.flatten()[:, None], driver="gelsd").solution
    relative = max(1e-3, torch.finfo(e.dtype).eps)
    allowed = min(8 * e.budget, relative * float(e.got.abs().max()))
    if max_error((matrix @ solved).flatten(), e.got.flatten()) > allowed:
        return None
    _, _, count = f.statistics(e.inputs.x)
    found = dict(zip(terms, solved.flatten().tolist(), strict=True))
    differing = {n: c for n, c in found.items() if abs(c - expected.get(n, 0.0)) > 1e-2}
    if not differing:
        return None
    through = {"direct": "the direct term", "mean": "the term through the mean"}
    through["projection"] = "the term through the variance"
    names = {"mean": "missing_mean_term", "projection": "missing_projection_term"}
    parts, mistakes = [], []
    for name, c in differing.items():
        base, _, unweighted = name.partition(", ")
        right = expected[base] if not unweighted else 0.0
        if unweighted:
            parts.append(f"{through[base]} has no weight")
            mistakes.append("missing_weight")
        elif abs(c) <= 1e-2:
            if f"{base}, no weight" in differing:
                continue
            parts.append(f"{through[base]} is missing")
            mistakes.append(names.get(base, "wrong_term"))
        elif abs(c + right) <= 1e-2 and right:
            parts.append(f"{through[base]} has the wrong sign")
            mistakes.append("wrong_sign")
        elif right and abs(c / right - count) <= 0.01 * count:
            parts.append(f"{through[base]} is summed, not averaged over {count} entries")
            mistakes.append("summed_term")
        else:
            parts.append(f"{through[base]} has the factor {c:.3g}, expected {right:.3g}")
            mistakes.append("wrong_term")
    return Diagnosis("+".join(dict.fromkeys(mistakes)), "; ".join(parts))


def explain_parameter(e: Evidence, key: str, expected: Tensor) -> Diagnosis:
    """Name the mistake behind a wrong gradient, whose `key` is "dweight" or "dbias"."""
    got, scale = e.got, float(expected.abs().max())

    def same(value: Tensor) -> bool:
        return max_error(got, value) <= max(1e-4, 2 * torch.finfo(e.dtype).eps) * scale

    if not got.isfinite().all():
        return Diagnosis(None, "it has entries that are not finite")
    if float(got.abs().max()) == 0:
        return Diagnosis("zero_gradient", "it is zero")
    ratio = float((got * expected).sum() / expected.square().sum())
    if same(expected * ratio):
        if ratio < 0:
            return Diagnosis("wrong_sign", f"it is {ratio:.3g} times what it should be")
        if ratio < 1:
            text = f"it is {ratio:.3g} times the sum over samples: averaged, not summed"
            return Diagnosis("averaged", text)
        return Diagnosis("summed_twice", f"it is {ratio:.3g} times the sum over samples")
    if key == "dweight":
        f, x = e.formula, e.inputs.x
        mean, _, _ = f.statistics(x)
        view, _ = f.view(x)
        for text, factor in (
            ("it is the gradient by the bias: x_hat is missing", torch.ones_like(x)),
            ("it multiplies dy by the input, not by the normalized input", x),
            (
                "it multiplies dy by x - mean, not by the normalized input",
                (view - mean).reshape(x.shape),
            ),
            ("it multiplies dy by the output", e.output),
        ):
            if same((e.inputs.dy * factor).sum_to_size(f.parameter_view(x)).view(got.shape)):
                return Diagnosis("wrong_dweight", text)
    return Diagnosis(None, "no known mistake explains it")
