"""Gradients where some of input, weight and bias need none, as in a layer that is adapted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from normlab.checks.inputs import Inputs, Results, make_inputs
from normlab.checks.probing import ForeignModule
from normlab.checks.report import Finding, Ran, make_failure
from normlab.checks.tolerances import GROSS, max_error
from normlab.checks.trial import Trial

Caller = Callable[[Tensor], tuple[Tensor, Sequence[Tensor | None]]]

_NAME = "frozen parameters"
WORDS = {"dx": "the input", "dweight": "the weight", "dbias": "the bias"}


def calls_of(trial: Trial, inputs: Inputs) -> Caller:
    """The same copy at each call, with the same leaves."""
    _, weight, bias = inputs.leaves(torch.float32)
    layer = trial.layer
    if not isinstance(layer, ForeignModule):
        return lambda x: layer(inputs.case, x, weight, bias)
    module = layer.prepare(torch.float32, weight, bias).train()
    leaves = layer.leaves_of(module)
    return lambda x: (module(x), leaves)


def is_far(got: Tensor | None, want: Tensor) -> bool:
    """Whether a result is missing or grossly wrong."""
    if got is None:
        return True
    allowed = GROSS * max(1.0, float(want.abs().max()))
    return not max_error(got.reshape(want.shape), want) <= allowed


def check_frozen(trial: Trial) -> Iterator[Finding]:
    """Each subset of input, weight and bias that may need a gradient."""
    if not trial.scope.backward:
        return
    inputs = make_inputs(trial.cases[0], seed=28)
    call, right, x = calls_of(trial, inputs), trial.expect(inputs), inputs.x.clone()
    _, parameters = call(x)
    given = zip(WORDS, (x, *parameters[:2]), strict=False)
    leaves = {key: t for key, t in given if t is not None and key in right}
    subsets = (itertools.combinations(leaves, n) for n in range(len(leaves) - 1, 0, -1))
    for needed in itertools.chain.from_iterable(subsets):  # few that are frozen first
        yield Ran(_NAME)
        try:
            text = _differentiate(call, inputs, leaves, needed, right)
        except Exception as error:  # the layer under test may fail in any way
            text = f"it raises {type(error).__name__}: {error}"
        if text:
            frozen = [word for key, word in WORDS.items() if key in leaves.keys() - needed]
            verb = "need" if len(frozen) > 1 else "needs"
            text = f"where {' and '.join(frozen)} {verb} no gradient, {text}"
            yield make_failure(_NAME, text, "frozen")
            return


def _differentiate(
    call: Caller,
    inputs: Inputs,
    leaves: Mapping[str, Tensor],
    needed: Sequence[str],
    right: Results,
) -> str:
    """What is wrong where these leaves alone need a gradient; empty if nothing is."""
    for key, leaf in leaves.items():
        leaf.grad = None
        leaf.requires_grad_(key in needed)
    y, _ = call(leaves["dx"])
    if y.requires_grad:
        y.backward(inputs.dy.clone())
    for key in needed:
        got = leaves[key].grad
        if is_far(got, right[key]):
            state = "missing" if got is None else "zero" if not got.any() else "wrong"
            return f"the gradient by {WORDS[key]} is {state}"
    return ""
