"""Graders of the exercises on checks; each returns a sentence that names the mistake.

Here the reader writes checks, and wrong layers grade them: a check is right if it rejects what is
wrong and accepts what is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, as_plain, grader, what_fails
from normlab.checks.conformance import check_layer
from normlab.checks.mistakes import MISTAKES
from normlab.checks.mutants import LAYER_NORM_MUTANTS, LAYER_NORM_NAMES, find_mutant
from normlab.layers import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from normlab.norms import NORMS

Layer = Callable[..., Tensor]


def _in_another_style(
    x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """A right layer norm that rounds elsewhere: in float64, and folded into one affine map."""
    wide = x.double()
    dims = tuple(range(-len(tuple(normalized_shape)), 0))
    mean = wide.mean(dims, keepdim=True)
    rstd = ((wide - mean).square().mean(dims, keepdim=True) + eps).rsqrt()
    y = wide * rstd - mean * rstd
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).to(x.dtype)


_RIGHT: dict[str, Layer] = {
    "torch's own layer": F.layer_norm,
    "the package's layer": layer_norm,
    "a layer that computes in float64 and rounds at the end": _in_another_style,
}


@grader
def check_gradcheck(answer: Answer) -> Grading:
    """Grade `answer(mistake) -> bool`: does torch.autograd.gradcheck, in float64, notice it?"""
    forward = "autograd derives the gradient of the wrong formula, and it fits the wrong formula"
    backward = "here output and gradient do not belong to the same function, and that it sees"
    for mistake, seen in (
        ("the divisor is n - 1", False),
        ("the gradient lacks the projection term", True),
        ("the mean runs over the wrong axis", False),
        ("mean and variance are detached", True),
        ("eps stands outside the root", False),
    ):
        why = f"{mistake}: {backward if seen else forward}"
        yield Question((mistake,), seen, {why: not seen})


def _ask(answer: Answer, layer: Layer, wrong: str = "") -> Generator[str, None, set[bool]]:
    """What three calls say of a layer; a wrong one has a name."""
    prefix, remedy = (f"for {wrong} ", "; return False instead") if wrong else ("", "")
    found = set()
    for _ in range(3):
        try:
            verdict = answer(layer)
        except Exception as error:  # a reader's function may fail in any way; say how
            if not wrong:
                raise
            first = str(error).partition("\n")[0].rstrip(" .,:")
            yield f"{prefix}it raised {type(error).__name__}: {first}{remedy}"
        verdict = as_plain(verdict)
        if not isinstance(verdict, bool):
            yield f"{prefix}expected True or False, got {type(verdict).__name__}{remedy}"
        found.add(verdict)
    return found


def _grade_check(answer: Answer, wrong: Iterable[str]) -> Grading:
    for name, layer in _RIGHT.items():
        verdicts = yield from _ask(answer, layer)
        if False in verdicts:
            always = "" if True in verdicts else " always"
            yield (
                f"a false alarm: it{always} rejects {name}, which is right; two right layers "
                "differ by rounding, so compare within a tolerance, and return True for what is "
                "right"
            )
    alive, hesitant = [], []
    for name in wrong:
        verdicts = yield from _ask(answer, LAYER_NORM_MUTANTS[name], name)
        if verdicts == {True}:
            alive.append(name)
        elif True in verdicts:
            hesitant.append(name)
    if alive:
        yield f"{len(alive)} live: {', '.join(alive)}. {_hint(alive[0])}"
    if hesitant:
        yield f"{hesitant[0]} is rejected in some calls only; fix the seed of the input"


_GRADIENT = "Its output is right; ask for the gradient, from a random upstream gradient"
_VALUES = "Its output is wrong for ordinary input; compare values, with few features, too"
# what a mistake shows on -> where to look
_HINTS = {
    "small inputs": "Where does eps show? Only where the variance is not large beside it",
    "inputs far from zero": (
        "A variance that cancels shows far from zero, and only beside a better computation"
    ),
    "gradients": _GRADIENT,
}
_MORE = {
    "other_eps": "Leave eps out once: the default may be another one",
    "missing_projection_term": (
        "With weight 1 the gradient of y.sum() is zero in the right layer, and here"
    ),
    "weight_after_projection": "Give it a weight that is not one number",
}


def _hint(name: str) -> str:
    mistake = MISTAKES[LAYER_NORM_NAMES[name]]
    hint = _HINTS.get(mistake.needs, _VALUES)
    return f"{hint}. {_MORE[mistake.name]}" if mistake.name in _MORE else hint


@grader
def check_killer(answer: Answer) -> Grading:
    """Grade `answer(layer) -> bool`, a check of a layer norm, True for a right one.

    It must reject the layer whose gradient lacks the term through the variance, and accept
    three right layers.
    """
    yield from _grade_check(answer, ["backward_without_projection_term"])


@grader
def check_suite(answer: Answer) -> Grading:
    """Grade `answer(layer) -> bool`, a check of a layer norm that lets none of eleven pass.

    Returns:
        "right", "not answered yet", or which wrong layers live, and what the first one needs.
    """
    yield from _grade_check(answer, LAYER_NORM_MUTANTS)


def _right_group_norm(
    x: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    groups = x.unflatten(1, (num_groups, -1)).flatten(2)
    shape = (1, -1) + (1,) * (x.dim() - 2)
    y = _in_another_style(groups, groups.shape[2:], None, None, eps).reshape(x.shape)
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


# one of them is right: a check that cries wolf costs as much as one that sleeps
SUSPECTS: dict[str, tuple[str, Layer]] = {
    "A": ("group_norm", find_mutant("group_norm", "wrong_grouping").make()),
    "B": ("layer_norm", find_mutant("layer_norm", "averaged").make()),
    "C": ("group_norm", _right_group_norm),
    "D": ("batch_norm", find_mutant("batch_norm", "running_var_biased").make()),
}
_SUSPECTED = {"A": "grouping", "B": "weight gradient", "C": "right", "D": "running variance"}


@grader
def check_suspects(answer: Answer) -> Grading:
    """Grade `answer() -> dict`, what is wrong with each of `SUSPECTS`.

    The values are "right", "grouping", "axes", "eps", "divisor", "input gradient", "weight
    gradient", "running mean" or "running variance".
    """
    hints = {
        "A": "its output differs from group norm's, and only where a group has several channels",
        "B": "its output and the gradient by the input are right",
        "C": "no input tells it from group norm; a difference of a few roundings is no mistake",
        "D": "it normalizes as it should; look at what it leaves behind",
    }
    said = answer()
    if not isinstance(said, dict) or set(said) != set(_SUSPECTED):
        yield f"expected a dict with the keys {', '.join(_SUSPECTED)}"
    for name, truth in _SUSPECTED.items():
        if said[name] != truth:
            yield f"{name} is not {said[name]!r}: {hints[name]}"


BLACK_BOX_SHAPE = (4, 6, 5)
_IN_BOX = ("rms_norm", "group_norm", "batch_norm", "layer_norm", "instance_norm")
# each is a function of an input of shape `BLACK_BOX_SHAPE`, without weight and bias
BLACK_BOXES: tuple[Layer, ...] = (
    lambda x: rms_norm(x, (5,)),
    lambda x: group_norm(x, 3),
    lambda x: batch_norm(x, None, None, training=True),
    lambda x: layer_norm(x.movedim(1, -1), (6,)).movedim(-1, 1),
    lambda x: instance_norm(x),
)


@grader
def check_black_boxes(answer: Answer) -> Grading:
    """Grade `answer() -> tuple`, the family of each of `BLACK_BOXES`."""
    probes = {
        "batch_norm": "change one sample: do the outputs of the others stay?",
        "layer_norm": "change one position: do the outputs at the others stay?",
        "rms_norm": "add the same number to all entries: does the output stay?",
        "group_norm": "change one channel: how many channels move with it?",
        "instance_norm": "change one channel: how many channels move with it?",
    }
    said = answer()
    said = said.tolist() if isinstance(said, np.ndarray) else said
    if not isinstance(said, list | tuple) or len(said) != len(_IN_BOX):
        yield f"expected a tuple of {len(_IN_BOX)} names"
    for index, (got, family) in enumerate(zip(said, _IN_BOX, strict=True)):
        if got not in NORMS:
            yield f"{got!r} is no family; expected one of {', '.join(NORMS)}"
        if got != family:
            yield f"box {index} is no {got}; {probes[family]}"


def dialect(
    x: Tensor, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Tensor:
    """An RMS norm as some model might have it: right by its own conventions, not by torch's."""
    eps = 1e-6 if eps is None else eps
    dims = tuple(range(-len(tuple(normalized_shape)), 0))
    h = x.float()
    length = h.norm(dim=dims, keepdim=True)  # with the gradient 0 at 0, where a root has NaN
    y = h / (length / math.prod(normalized_shape) ** 0.5 + eps)
    return (y if weight is None else y * (1 + weight.float())).to(x.dtype)


@grader
def check_declaration(answer: Answer) -> Grading:
    """Grade `answer() -> dict`, the conventions with which `dialect` conforms to RMS norm.

    Returns:
        "right", "not answered yet", or what is still to be declared.
    """
    yield what_fails(check_layer(dialect, like="rms_norm", **answer()))
