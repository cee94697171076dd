"""What a conformance check has to say."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

# how large an error is differs from check to check
_SIZE = re.compile(r" \(error [^)]*\)")


# short name -> the mistake in other words, or its remedy: the last sentence of a failure
REMEDIES: dict[str, str] = {
    "bessel": "Bessel's correction has no place in the forward pass: use correction=0",
    "biased": "Declared is Bessel's correction, divisor n-1: use correction=1",
    "eps_outside": "This is eps outside the root: write sqrt(var + eps), not sqrt(var) + eps",
    "eps_inside": "This is eps inside the root; another place was declared",
    "eps_clamp": "This is eps as a clamp, max(std, sqrt(eps)): write sqrt(var + eps)",
    "other_eps": "If another eps is meant, declare it: check_layer(..., eps=...)",
    "one_pass": "Subtract the mean first, then square",
    "centered": "RMSNorm has no centering: leave the mean in, or check it as a layer_norm",
    "threshold_ignored": "Return max(y, threshold) for each channel",
    "threshold_above": "Take the maximum of output and threshold, not the minimum",
    "threshold_before_affine": "Apply weight and bias first, then take the maximum",
    "threshold_gradient": "Let autograd differentiate torch.maximum(y, threshold)",
    "correction_ignored": "In training return (x_hat * r + d) * weight + bias",
    "correction_attached": "Compute r and d under torch.no_grad(), or detach them",
    "correction_after_affine": "Apply r and d to x_hat, before weight and bias",
    "r_unclamped": "Write r.clamp(1 / r_max, r_max)",
    "r_inverted": "Write r = sqrt(var + eps) / sqrt(running_var + eps)",
    "r_squared": "Take the root of both variances",
    "d_unclamped": "Write d.clamp(-d_max, d_max)",
    "d_unscaled": "Write d = (mean - running_mean) / sqrt(running_var + eps)",
    "d_negated": "Write d = (mean - running_mean) / sqrt(running_var + eps)",
    "running_before_use": "Compute r and d first, and record the batch afterwards",
    "uncentered_numerator": "Centering is missing in the numerator: write x - mean",
    "missing_centering": "This is an RMSNorm: subtract the mean first",
    "uncentered_variance": "Centering is missing in the variance: square x - mean",
    "weight_offset": "If 1 + weight is meant, declare weight_offset=1",
    "weight_offset_forgotten": "The offset by one is forgotten: multiply by 1 + weight",
    "weight_offset_doubled": "The offset by one is doubled: add 1 once",
    "factor_of_0": "Keep x or x_hat for the backward pass: behind a factor of 0 y tells neither",
    "weight_ignored": "Multiply by the weight",
    "bias_ignored": "Add the bias",
    "bias_first": "The weight is applied after the bias: scale first, then shift",
    "sum_not_mean": "Take the mean of the squares",
    "mean_not_sum": "Take the sum of the squares: no division by n",
    "wrong_axis": "Check the axes of the mean and of the variance",
    "wrong_grouping": "Split the channels as (num_groups, channels / num_groups), in this order",
    "detached_statistics": "Gradients must flow through mean and variance: no detach, no no_grad",
    "averaged": "Sum over all rows: the loss has averaged already",
    "weight_after_projection": "Multiply dy by the weight first, then project",
    "running_var_biased": "Bessel's correction is missing in the running variance: n / (n - 1)",
    "running_var_with_eps": "Add eps where the root is taken, and not before",
    "momentum_reversed": "The direction is reversed: write running.lerp_(new, momentum)",
    "eval_uses_batch": "Use running_mean and running_var when not training",
    "eval_stale": "Keep nothing between calls that depends on statistics or parameters",
    "state_lost": "Use register_buffer (and keep it persistent), so that state_dict has it",
    "unregistered": "Use nn.Parameter as an attribute, nn.ParameterList or register_buffer",
    "running_in_graph": "Update under torch.no_grad(), or detach the batch's statistics",
    "output_dtype": "Return y.to(x.dtype)",
    "half_precision_statistics": "Cast to float32 before squaring: x.float()",
    "in_place": "Work on a copy: no x.sub_(), no x -= mean",
    "non_contiguous": "Use reshape, not view, and strides, not the order in memory",
    "weight_raises": "Reshape a weight of the channels before it multiplies, and no other",
    "bias_raises": "Reshape a bias of the channels before it is added, and no other",
    "no_weight_raises": "The signature lets the weight be None: multiply only where there is one",
    "no_bias_raises": "The signature lets the bias be None: add only where there is one",
    "no_running_raises": "The signature lets running statistics be None: record only into some",
    "axes_raises": "Take the mean over all axes of normalized_shape",
    "rank_raises": "Count axes from the end; if one rank alone is meant, pass shape=",
    "empty_input": "Return an empty tensor of the input's shape",
}


class CheckFailed(AssertionError):
    """A check was not passed; the message says what was expected and what came."""


@dataclass(frozen=True)
class Failure:
    """One check that a layer does not pass.

    Attributes:
        check: name of the check.
        message: a sentence that names the likely mistake.
        mistake: short name of that mistake, or None where none was recognized; several at
            once are joined by "+".
        inputs: how many inputs showed it.
    """

    check: str
    message: str
    mistake: str | None = None
    inputs: int = 1


def make_failure(check: str, sentence: str, mistake: str | None = None) -> Failure:
    """A failure whose message ends in the remedies of its mistakes."""
    known = [REMEDIES[m] for m in (mistake or "").split("+") if m in REMEDIES]
    return Failure(check, ". ".join([sentence, *known]), mistake)


@dataclass
class Report:
    """Result of :func:`normlab.checks.check_layer`.

    Attributes:
        like: the family that the layer was compared with.
        checks: names of the checks that ran, in order.
        failures: those that were not passed.
        notes: what could not be checked, and why.
        untested: dtypes of which the layer refuses every input, a sentence for each.
        cases: calls that were compared.
    """

    like: str
    checks: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    untested: list[str] = field(default_factory=list)
    cases: int = 0

    @property
    def passed(self) -> bool:
        """Whether something was compared and no check failed."""
        return bool(self.checks) and self.cases > 0 and not self.failures

    def to_dict(self) -> dict[str, Any]:
        """The report as lists, strings and one bool, ready for JSON.

        Example:
            >>> Report("layer_norm", checks=["shape"], cases=1).to_dict()["passed"]
            True
        """
        return {"passed": self.passed, **asdict(self)}

    def __str__(self) -> str:
        if self.passed:
            head = f"conforms to {self.like}: {len(self.checks)} checks"
        else:
            head = (
                f"does not conform to {self.like}: "
                f"{len({f.check for f in self.failures})} of {len(self.checks)} checks failed"
            )
        lines = [f"{head}, {self.cases} case{'s' if self.cases != 1 else ''}"]
        lines += self._failures()
        lines += [f"  not tested: {sentence}" for sentence in self.untested]
        lines += [f"  not checked: {note}" for note in self.notes]
        return "\n".join(lines)

    def _failures(self) -> list[str]:
        """A line for each mistake, with the checks and the number of inputs that showed it."""
        by_mistake: dict[str, list[Failure]] = {}
        for failure in self.failures:
            key = failure.mistake or _SIZE.sub("", failure.message)
            by_mistake.setdefault(key, []).append(failure)
        lines = []
        for alike in by_mistake.values():
            checks = ", ".join(dict.fromkeys(f.check for f in alike))
            count = sum(f.inputs for f in alike)
            where = f"{checks} ({count} inputs)" if count > 1 else checks
            lines.append(f"  {where}: {alike[0].message}")
        return lines
