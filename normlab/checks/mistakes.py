"""Every mistake that the checks can name, each defined once.

A definition says what is wrong, what to do, which change makes it, of which norms the suite has a
wrong one, and where somebody met it. Diagnosis, remedies, wrong norms, the kill matrix, exercises
and the museum in the book read it here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from torch import Tensor, nn

from normlab.checks import changes
from normlab.checks.changes import Call
from normlab.checks.formula import Formula
from normlab.norms import NORMS, Norm

Predicate = Callable[[Norm], bool]
Gradient = Callable[[Formula, Tensor, Tensor | None, Tensor | None, Tensor], Tensor]

# A choice between conventions: the words before its value, and the words of each value. It is a
# mistake only where another one was declared.
CHOICES: dict[str, tuple[str, dict[Any, str]]] = {
    "divisor": ("the variance has divisor", {"n": "n", "n-1": "n-1"}),
    "eps_placement": (
        "eps is",
        {
            "inside": "inside the root",
            "outside": "added to the root",
            "clamp": "a lower bound of the root (a clamp)",
            "twice": "added twice, under the root and to it",
        },
    ),
    "weight_offset": ("the factor is", {0.0: "weight", 1.0: "1 + weight", 2.0: "2 + weight"}),
}


def _of_squares(norm: Norm) -> bool:
    return norm.spread == "mean square"


def _weights_within_a_mean(norm: Norm) -> bool:
    """Whether cells of one mean have different weights, so that weight and mean do not commute."""
    return norm.parameters == "shape" or norm.over_channels != "none"


@dataclass(frozen=True)
class Mistake:
    """One way to get a norm wrong."""

    name: str  #: `Failure.mistake` of a report that recognizes it, unless `reported` says otherwise
    _: KW_ONLY
    message: str = ""  #: what is wrong, for the report; empty where the check that finds it says it
    message_uncentered: str = ""  #: the same of a norm that subtracts no mean
    remedy: str = ""  #: what to do: the last sentence of a failure
    changes: Mapping[str, Any] = field(default_factory=dict)  #: fields of the :class:`Formula`
    default_eps: float = 1.0  #: factor of the default eps
    call: Mapping[str, Any] = field(default_factory=dict)  #: fields of the :class:`Call`
    before: Callable[[Call], None] | None = None  #: changes a call
    after: Callable[[Call, Tensor], Tensor] | None = None  #: changes an output
    gradient: Gradient | None = None  #: a wrong gradient by the input
    in_gradients: bool = False  #: whether `changes` are tried to explain a wrong gradient
    module: Callable[[nn.Module], None] | None = None  #: changes a module
    #: whether it is tried to explain a failure of such a norm
    applies_to: Predicate = lambda norm: True
    wrong_norm: Predicate | None = None  #: whether the suite has such a norm with this mistake
    seen_in: Mapping[str, str] = field(default_factory=dict)  #: norm -> where somebody made it
    #: what a report names, if not `name`; "" where the name of the check says it all
    reported: Callable[[Norm], str] | None = None
    needs: str = ""  #: what it takes to see it in a layer norm

    @property
    def choice(self) -> str:
        """The convention that it chooses differently; empty if it is no choice."""
        return next((key for key in self.changes if key in CHOICES), "")

    def sentence(self, right: Formula) -> str:
        """What is wrong, if `right` is declared."""
        if not self.choice:
            centered = NORMS[right.like].centered or not self.message_uncentered
            return self.message if centered else self.message_uncentered
        subject, words = CHOICES[self.choice]
        expected = words[getattr(right, self.choice)]
        return f"{subject} {words[self.changes[self.choice]]}, expected {expected}"


def _not_at(place: str) -> Predicate:
    return lambda norm: norm.eps_placement != place


_CHOICES = (
    Mistake(
        "bessel",
        remedy="Bessel's correction has no place in the forward pass: use correction=0",
        changes={"divisor": "n-1"},
        wrong_norm=lambda norm: norm.centered and _of_squares(norm),
        seen_in={
            "layer_norm": "annotated-transformer pull request 119",
            "batch_norm": "makemore issue 44",
        },
        needs="few features",
    ),
    Mistake(
        "biased",
        remedy="Declared is Bessel's correction, divisor n-1: use correction=1",
        changes={"divisor": "n"},
    ),
    Mistake(
        "eps_outside",
        remedy="This is eps outside the root: write sqrt(var + eps), not sqrt(var) + eps",
        changes={"eps_placement": "outside"},
        wrong_norm=_not_at("outside"),
        seen_in={
            "layer_norm": "the LN paper's authors' Lua code",
            "rms_norm": "the RMSNorm paper's authors' torch code; OLMo issue 281",
        },
        needs="small inputs",
    ),
    Mistake(
        "eps_clamp",
        remedy="This is eps as a clamp, max(std, sqrt(eps)): write sqrt(var + eps), or declare "
        "eps_placement='clamp' and its eps",
        changes={"eps_placement": "clamp"},
        wrong_norm=_not_at("clamp"),
        seen_in={"rms_norm": "x-transformers' RMSNorm"},
        needs="small inputs",
    ),
    Mistake(
        "eps_inside",
        remedy="This is eps inside the root; another place was declared",
        changes={"eps_placement": "inside"},
    ),
    Mistake(
        "other_eps",
        remedy="If another eps is meant, declare it: pass eps=",
        default_eps=0.1,
        wrong_norm=lambda norm: True,
        seen_in={"layer_norm": "CTranslate2 pull request 951"},
        needs="small inputs",
    ),
    Mistake(
        "weight_offset",
        remedy="If 1 + weight is meant, declare weight_offset=1",
        changes={"weight_offset": 1.0},
        wrong_norm=lambda norm: norm.has_weight and norm.weight_offset == 0,
        seen_in={"rms_norm": "Liger-Kernel issue 74"},
    ),
    Mistake(
        "weight_offset_forgotten",
        remedy="The offset by one is forgotten: multiply by 1 + weight",
        changes={"weight_offset": 0.0},
        in_gradients=True,
        wrong_norm=lambda norm: norm.weight_offset == 1,
    ),
    Mistake(
        "weight_offset_doubled",
        remedy="The offset by one is doubled: add 1 once",
        changes={"weight_offset": 2.0},
    ),
)

_STRUCTURE = (
    Mistake(
        "uncentered_numerator",
        message="the mean is not subtracted before the division",
        remedy="Centering is missing in the numerator: write x - mean",
        changes={"center_numerator": False, "center_variance": True},
        applies_to=lambda norm: norm.centered,
        wrong_norm=lambda norm: norm.centered,
        needs="inputs with a mean",
    ),
    Mistake(
        "missing_centering",
        message="nothing is centered: the root mean square is taken in place of the variance",
        remedy="This is an RMSNorm: subtract the mean first",
        changes={"center_numerator": False, "center_variance": False},
        applies_to=lambda norm: norm.centered,
        wrong_norm=lambda norm: norm.centered,
    ),
    Mistake(
        "uncentered_variance",
        message="the variance is the mean of the squares: the mean is not subtracted in it",
        remedy="Centering is missing in the variance: square x - mean",
        changes={"center_numerator": True, "center_variance": False},
        applies_to=lambda norm: norm.centered,
    ),
    Mistake(
        "centered",
        message="the mean is subtracted: this is LayerNorm",
        remedy="RMSNorm has no centering: leave the mean in, or check it as a layer_norm",
        changes={"center_numerator": True, "center_variance": True},
        applies_to=lambda norm: not norm.centered,
        wrong_norm=lambda norm: not norm.centered,
    ),
    Mistake(
        "centered_numerator",
        message="the mean is subtracted before the division",
        changes={"center_numerator": True, "center_variance": False},
        applies_to=lambda norm: not norm.centered,
    ),
    Mistake(
        "centered_variance",
        message="the standard deviation is taken in place of the root mean square",
        changes={"center_numerator": False, "center_variance": True},
        applies_to=lambda norm: not norm.centered,
    ),
    Mistake(
        "sum_not_mean",
        message="the squares are summed, not averaged: 1/n is missing",
        remedy="Take the mean of the squares",
        changes={"sum_not_mean": True},
        applies_to=lambda norm: norm.spread != "sum of squares",
        wrong_norm=lambda norm: norm.spread != "sum of squares",
    ),
    Mistake(
        "mean_not_sum",
        message="the squares are averaged",
        remedy="Take the sum of the squares: no division by n",
        changes={"sum_not_mean": True},
        applies_to=lambda norm: norm.spread == "sum of squares",
        wrong_norm=lambda norm: norm.spread == "sum of squares",
    ),
    Mistake(
        "bias_first",
        message="the weight multiplies the bias, too",
        remedy="The weight is applied after the bias: scale first, then shift",
        changes={"affine_order": "bias, weight"},
        wrong_norm=lambda norm: norm.has_bias,
    ),
    Mistake(
        "weight_ignored",
        message="the weight is not applied",
        remedy="Multiply by the weight",
        changes={"affine_order": "no weight"},
    ),
    Mistake(
        "bias_ignored",
        message="the bias is not added",
        remedy="Add the bias",
        changes={"affine_order": "no bias"},
    ),
    Mistake(
        "affine_ignored",
        message="weight and bias are not applied",
        changes={"affine_order": "none"},
    ),
    Mistake(
        "no_root",
        message="the numerator is divided by the variance, not by its root",
        changes={"root": "variance"},
    ),
    Mistake(
        "inverse_root",
        message="the numerator is multiplied by the root, not divided",
        changes={"root": "inverse"},
    ),
    Mistake(
        "not_divided",
        message="the numerator is not divided by anything",
        changes={"root": "one"},
    ),
)

_PLACES = (
    Mistake(
        "wrong_axis",
        remedy="Check the axes of the mean and of the variance",
        before=changes.take_other_axes,
        call={"updates": False},
        wrong_norm=lambda norm: True,
        seen_in={
            "layer_norm": "attention-is-all-you-need-pytorch pull request 17",
            "rms_norm": "llama-from-scratch issue 4",
        },
        needs="a second row",
    ),
    Mistake(
        "wrong_grouping",
        message="neighboring channels fall into different groups",
        remedy="Split the channels as (num_groups, channels / num_groups), in this order",
        changes={"grouping": "interleaved"},
        wrong_norm=lambda norm: norm.grouped,
    ),
    Mistake(
        "bessel_eps_outside",
        reported=lambda norm: "bessel+eps_outside",
        changes={"divisor": "n-1", "eps_placement": "outside"},
        wrong_norm=lambda norm: norm.centered and norm.trailing and norm.eps_placement != "outside",
        seen_in={"layer_norm": "annotated-transformer pull request 119"},
        needs="few features",
    ),
    Mistake("eps_twice", remedy="Add eps once", changes={"eps_placement": "twice"}),
    Mistake(
        "padding_in_variance",
        message="the padding of a row to a power of two is part of the variance",
        remedy="Set what is beyond the row to 0 after the mean is subtracted, not before",
        changes={"padded": True},
        applies_to=lambda norm: norm.centered,
    ),
)

_GRADIENTS = (
    Mistake(
        "detached_statistics",
        message="mean and variance are cut from the graph (constants in the backward pass)",
        message_uncentered=(
            "the root mean square is cut from the graph: the term that comes through the "
            "variance is missing (a constant in the backward pass)"
        ),
        remedy="Gradients must flow through mean and variance: no detach, no no_grad",
        changes={"detach_mean": True, "detach_var": True},
        in_gradients=True,
        wrong_norm=lambda norm: True,
        seen_in={"batch_norm": "keras pull request 19102"},
        needs="gradients",
    ),
    Mistake(
        "missing_mean_term",
        message="the term that comes through the mean is missing",
        changes={"detach_mean": True},
        in_gradients=True,
        applies_to=lambda norm: norm.centered,
        wrong_norm=lambda norm: norm.centered and _of_squares(norm),
        needs="gradients",
    ),
    Mistake(
        "missing_projection_term",
        message="the term that comes through the variance is missing",
        changes={"detach_var": True},
        in_gradients=True,
        applies_to=lambda norm: (
            norm.centered
        ),  # else nothing but this statistic is cut, which is the one above
        wrong_norm=_of_squares,
        reported=lambda norm: "missing_projection_term" if norm.centered else "detached_statistics",
        needs="gradients",
    ),
    Mistake(
        "weight_after_projection",
        message="the weight is applied after the projection; it belongs before it",
        remedy="Multiply dy by the weight first, then project",
        gradient=changes.gradient_with_late_weight,
        wrong_norm=lambda norm: (
            _of_squares(norm) and norm.has_weight and _weights_within_a_mean(norm)
        ),
        needs="gradients",
    ),
    Mistake(
        "missing_weight",
        message="the weight is missing in the gradient by the input",
        gradient=changes.gradient_without_weight,
        wrong_norm=lambda norm: _of_squares(norm) and norm.has_weight,
    ),
    Mistake(
        "missing_rstd",
        message="the division by the standard deviation is missing",
        gradient=changes.gradient_without_rstd,
    ),
    Mistake(
        "averaged",
        remedy="Sum over all rows: the loss has averaged already",
        before=changes.average_weight_gradient,
        wrong_norm=lambda norm: _of_squares(norm) and norm.has_weight,
    ),
    Mistake(
        "upstream_overwritten",
        reported=lambda norm: "in_place",
        after=changes.overwrite_upstream,
        wrong_norm=_of_squares,
        seen_in={"rms_norm": "Liger-Kernel issue 370"},
    ),
)

_INPUTS = (
    Mistake(
        "one_pass",
        message="the error grows with the mean: the variance looks like mean(x²) - mean(x)² in one "
        "pass, which cancels",
        remedy="Subtract the mean first, then square",
        changes={"one_pass": True},
        wrong_norm=lambda norm: norm.centered and _of_squares(norm),
        seen_in={
            "layer_norm": "pytorch issue 51102",
            "batch_norm": "labml's annotated implementations, batch norm",
            "group_norm": "labml's annotated implementations, group norm",
        },
        needs="inputs far from zero",
    ),
    Mistake(
        "half_precision_statistics",
        remedy="Cast to float32 before squaring: x.float()",
        call={"upcasts_half": False},
        wrong_norm=_of_squares,
        seen_in={"rms_norm": "minimind issue 301"},
    ),
    Mistake(
        "eps_of_dtype",
        remedy="Take the same eps for every dtype, such as torch.finfo(torch.float32).eps",
    ),
    Mistake(
        "output_dtype",
        remedy="Return y.to(x.dtype)",
        after=changes.give_float32,
        wrong_norm=lambda norm: True,
        seen_in={"rms_norm": "transformers issue 30236"},
    ),
    Mistake(
        "in_place",
        remedy="Work on a copy: no x.sub_(), no x -= mean",
        before=changes.write_into_input,
        wrong_norm=lambda norm: True,
        seen_in={"rms_norm": "nano-vllm pull request 171"},
    ),
    Mistake(
        "non_contiguous",
        remedy="Use reshape, not view, and strides, not the order in memory",
        before=changes.ignore_strides,
        wrong_norm=lambda norm: True,
        seen_in={"batch_norm": "pytorch issue 62594"},
    ),
    Mistake(
        "empty_input",
        remedy="Return an empty tensor of the input's shape",
        after=lambda call, y: y if y.numel() else y.new_zeros(1, *y.shape[1:]),
        wrong_norm=lambda norm: norm.trailing,  # channel norms that refuse it are right, too
        seen_in={"layer_norm": "tensorflow issue 46366"},
    ),
    Mistake(
        "eps_argument",
        before=changes.ignore_eps,
        wrong_norm=lambda norm: True,
        seen_in={"rms_norm": "TVM pull request 15856"},
    ),
    Mistake(
        "constant_input",
        reported=lambda norm: "",
        before=changes.drop_eps_of_constants,
        wrong_norm=lambda norm: True,
        seen_in={"layer_norm": "TIM-VX pull request 589"},
    ),
    Mistake(
        "batch_of_one",
        reported=lambda norm: "",
        after=lambda call, y: y.squeeze(0),
        wrong_norm=lambda norm: "batch of one" not in norm.may_fail,
    ),
    Mistake(
        "factor_of_0",
        remedy="Keep x or x_hat for the backward pass: behind a factor of 0 y tells neither",
    ),
    Mistake(
        "root_of_zero",
        gradient=changes.gradient_of_bare_root,
        wrong_norm=_of_squares,
        needs="a row of one value",
    ),
    Mistake(
        "variance_of_one",
        remedy="Take the variance with correction=0, and not with n - 1 and a factor",
    ),
    Mistake("eps_underflows", remedy="Add eps to statistics in float32, and keep it in float32"),
    Mistake(
        "frozen",
        remedy="Ask needs_input_grad of each input by itself, and compute all that it asks for",
        before=changes.need_weight_gradient,
        wrong_norm=lambda norm: norm.has_weight,
        needs="a frozen weight",
    ),
    Mistake(
        "weight_raises",
        remedy="Reshape a weight of the channels before it multiplies, and no other",
        before=functools.partial(changes.lay_along_batch, role="weight"),
        wrong_norm=lambda norm: norm.parameters in ("channel", "shape"),  # a scalar fits anywhere
    ),
    Mistake(
        "bias_raises",
        remedy="Reshape a bias of the channels before it is added, and no other",
        before=functools.partial(changes.lay_along_batch, role="bias"),
        wrong_norm=lambda norm: norm.has_bias,
    ),
    Mistake(
        "no_weight_raises",
        remedy="The signature lets the weight be None: multiply only where there is one",
        before=changes.require_weight,
        wrong_norm=lambda norm: norm.has_weight,
    ),
    Mistake(
        "no_bias_raises",
        remedy="The signature lets the bias be None: add only where there is one",
    ),
    Mistake(
        "no_running_raises",
        remedy="The signature lets running statistics be None: record only into some",
    ),
    Mistake("axes_raises", remedy="Take the mean over all axes of normalized_shape"),
    Mistake(
        "rank_raises",
        remedy="Count axes from the end; if one rank alone is meant, pass shape=",
        before=changes.refuse_three_axes,
        # a batch or instance norm may be of one rank
        wrong_norm=lambda norm: norm.over_batch or not norm.needs_positions,
    ),
)

_STATE = (
    Mistake(
        "running_var_biased",
        message="the running variance is the biased one; torch stores it times n / (n - 1)",
        remedy="Bessel's correction is missing in the running variance: n / (n - 1)",
        wrong_norm=lambda norm: norm.has_running,
        seen_in={"batch_norm": "mlx pull request 3817; ARENA issue 415"},
    ),
    Mistake(
        "running_var_count",
        message="Bessel's correction of the running variance counts samples, not all positions",
    ),
    Mistake(
        "running_var_twice",
        message="Bessel's correction is applied twice to the running variance",
    ),
    Mistake(
        "running_var_with_eps",
        message="eps is part of the running variance",
        remedy="Add eps where the root is taken, and not before",
    ),
    Mistake(
        "momentum_reversed",
        message="momentum is the weight of the old value; in torch it is that of the new batch",
        remedy="The direction is reversed: write running.lerp_(new, momentum)",
        wrong_norm=lambda norm: norm.has_running,
        seen_in={"batch_norm": "d2l-en pull request 2213"},
    ),
    Mistake(
        "cumulative",
        message="the update is a cumulative average; expected is an exponential one",
    ),
    Mistake(
        "first_replaces",
        message="the first batch replaces the running statistics; expected is a step toward it",
        remedy="Take momentum from the first batch on",
    ),
    Mistake(
        "running_in_graph",
        message="the running statistics stay in the autograd graph, which grows with every batch; "
        "update them without gradient",
        remedy="Update under torch.no_grad(), or detach the batch's statistics",
        wrong_norm=lambda norm: norm.has_running,
        seen_in={"batch_norm": "d2l-en issue 1342"},
    ),
    Mistake(
        "not_updated",
        message="the running statistics do not move",
        call={"updates": False},
        wrong_norm=lambda norm: norm.has_running,
        seen_in={"batch_norm": "aprender pull request 2166"},
    ),
    Mistake(
        "eval_uses_batch",
        message="evaluation normalizes with the statistics of the batch, not with the running ones",
        remedy="Use running_mean and running_var when not training",
        call={"uses_batch_statistics": True},
        wrong_norm=lambda norm: norm.has_running,
    ),
    Mistake(
        "eval_updates",
        message="evaluation changes the running statistics",
        call={"updates": True},
        wrong_norm=lambda norm: norm.has_running,
    ),
    Mistake(
        "eval_stale",
        message="evaluation after a step of training still uses what it kept from before that step",
        remedy="Keep nothing between calls that depends on statistics or parameters",
    ),
    Mistake(
        "running_shape",
        remedy="Register running statistics with one axis, and view them where they are used",
    ),
    Mistake(
        "not_counted",
        message="num_batches_tracked stays as it is in training; torch adds 1 for each batch",
        remedy="Add 1 to it wherever the running statistics move",
    ),
    Mistake("not_frozen", remedy="Keep weight, bias, mean and variance by register_buffer"),
    Mistake("frozen_moves", remedy="Call F.batch_norm with training=False, whatever the mode"),
    Mistake(
        "frozen_uses_batch",
        message="training normalizes with the statistics of the batch, not with the fixed ones",
        remedy="Use the buffers in training, too",
        changes={"fixed": None},
    ),
    Mistake(
        "load_changes",
        remedy="load_state_dict has to bring back what state_dict saves",
    ),
    Mistake(
        "unregistered",
        remedy="Use nn.Parameter as an attribute, nn.ParameterList or register_buffer",
        module=changes.hide_parameters,
        wrong_norm=lambda norm: norm.has_weight and not norm.has_running,
    ),
    Mistake(
        "state_lost",
        remedy="Use register_buffer (and keep it persistent), so that state_dict has it",
        module=changes.hide_buffers,
        wrong_norm=lambda norm: norm.has_running,
        seen_in={"batch_norm": "d2l-zh pull request 1265"},
    ),
    Mistake(
        "eval_differs",
        module=changes.halve_in_evaluation,
        wrong_norm=lambda norm: not norm.has_running,
    ),
    Mistake("evaluation_raises", module=changes.raise_in_evaluation, wrong_norm=lambda norm: True),
)

MISTAKES: dict[str, Mistake] = {
    mistake.name: mistake
    for mistake in (*_CHOICES, *_STRUCTURE, *_PLACES, *_GRADIENTS, *_INPUTS, *_STATE)
}


def choices(right: Formula) -> Iterator[Mistake]:
    """Other conventions than those that are declared."""
    for mistake in _CHOICES:
        if mistake.choice and mistake.changes[mistake.choice] != getattr(right, mistake.choice):
            yield mistake


def structure(right: Formula) -> Iterator[Mistake]:
    """What is centered, squared, divided and scaled in another way."""
    return (m for m in _STRUCTURE if m.applies_to(NORMS[right.like]))


def wrong_gradients(right: Formula) -> Iterator[Mistake]:
    """What a backward pass may lack."""
    for mistake in MISTAKES.values():
        tried = mistake.in_gradients or mistake.gradient is not None
        if tried and mistake.applies_to(NORMS[right.like]):
            yield mistake


def remedies(mistake: str | None) -> list[str]:
    """What to do about one mistake, or about several that are joined by "+"."""
    known = (MISTAKES.get(name) for name in (mistake or "").split("+"))
    return [m.remedy for m in known if m is not None and m.remedy]
