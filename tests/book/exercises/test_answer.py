"""What an answer may not do is found, and what it returns is read before its mathematics is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from normlab import kernels, layers, plain, reference
from normlab.book.exercises import Question, grader
from normlab.book.exercises.grading import Answer, Grading, random

X = random(3, 4, seed=0)


def by_hand(x: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()


@grader(forbids=("layer_norm", "autograd", "float64"))
def check(answer: Answer) -> Grading:
    """Grade `answer(x)`, layer norm by hand."""
    yield Question((X,), by_hand(X))


def by_forward_mode(x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(by_hand(forward_ad.make_dual(x, x))).tangent


def layer_norm(x: Tensor) -> Tensor:
    """The reader's own function may have any name."""
    return by_hand(x)


@pytest.mark.parametrize("answer", [by_hand, layer_norm, lambda x: by_hand(x).numpy()])
def test_an_answer_by_hand_calls_nothing_that_is_forbidden(answer: Callable[..., Any]) -> None:
    assert check(answer) == "right"


@pytest.mark.parametrize(
    ("says", "answer"),
    [
        ("layer_norm", lambda x: functional.layer_norm(x, (4,))),
        ("layer_norm", lambda x: torch.layer_norm(x, (4,))),
        ("layer_norm", lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5)[0]),
        ("layer_norm", lambda x: torch.ops.aten.native_layer_norm(x, [4], None, None, 1e-5)[0]),
        ("layer_norm", nn.LayerNorm(4, elementwise_affine=False)),
        ("layer_norm", lambda x: layers.layer_norm(x, (4,))),
        ("layer_norm", lambda x: kernels.layer_norm(x, (4,))),
        ("layer_norm", lambda x: plain.layer_norm(x, (4,), 1.0, 0.0, 1e-5)[0]),
        ("layer_norm", lambda x: reference.layer_norm(x, (4,))[0]),
        ("autograd", lambda x: torch.func.vjp(by_hand, x)[1](x)[0]),
        ("autograd", lambda x: torch.autograd.functional.jacobian(by_hand, x).sum((2, 3))),
        ("autograd", lambda x: x.clone().requires_grad_().square().sum().backward()),
        ("autograd", by_forward_mode),
        ("float64", lambda x: by_hand(x.double())),
        ("float64", lambda x: torch.tensor(np.asarray(x).astype("f8"))),
        ("float64", lambda x: np.float64(by_hand(x))),
    ],
)
def test_what_is_forbidden_is_found(says: str, answer: Callable[..., Any]) -> None:
    said = check(answer)
    assert said.startswith("wrong: it c")
    assert says in said


def judged(got: Any, expected: Any, **options: Any) -> str:
    @grader
    def one(answer: Answer) -> Grading:
        """Grade `answer()`."""
        yield Question((), expected, **options)

    return one(lambda: got)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (np.float32(0.5), 0.5),
        (torch.tensor(0.5), 0.5),
        ([1.0, 2.0], (1.0, 2.0)),
        (np.array([1, 2]), (1.0, 2.0)),
        (((1.0, 2.0), [3.0, 4.0]), (1.0, 2.0, 3.0, 4.0)),
        ([[1.0, 2.0]], torch.tensor([[1.0, 2.0]])),
        ([torch.tensor(1.0), 2.0], np.array([1.0, 2.0])),
        (np.bool_(True), True),
        (torch.tensor(False), False),
        (np.str_("mode"), "mode"),
    ],
)
def test_right_values_of_other_types_are_right(got: Any, expected: Any) -> None:
    assert judged(got, expected) == "right"


@pytest.mark.parametrize(
    ("got", "expected", "says"),
    [
        ("0.5", 0.5, "expected a number, got str"),
        ("none", True, "expected True or False, got str"),
        (3.0, "mode", "expected a string, got float"),
        (1.0, (1.0, 2.0), "expected a tuple of 2 values, got float"),
        ((1.0,), (1.0, 2.0), "expected a tuple of 2 values, got 1"),
        (("a", 2.0), (1.0, 2.0), "value 1 of 2: expected a number, got str"),
        ([1.0, 2.0], 1.0, "expected one number, got shape (2,)"),
        (torch.ones(2, 1), torch.ones(2), "expected shape (2,), got shape (2, 1)"),
        (torch.tensor([1.0, torch.nan]), torch.ones(2), "it holds nan"),
        (-X, X, "its sign is reversed"),
        (1 / X, X, "the reciprocal"),
        (1.7 * X, X, "it is 1.7 times the right value"),
        ((2.0, 1.0), (1.0, 2.0), "in reversed order"),
        ((1.0, 5.0), (1.0, 2.0), "value 2 of 2 is wrong"),
        (0.7, 0.5, "the value is wrong"),
    ],
)
def test_type_shape_and_relation_are_named_before_the_mathematics(
    got: Any, expected: Any, says: str
) -> None:
    said = judged(got, expected)
    assert said.startswith("wrong: ")
    assert says in said


def test_a_mistake_goes_before_its_shape_and_a_hint_after_its_type() -> None:
    mistakes = {"still transposed": X.T}
    assert judged(X.T, X, mistakes=mistakes) == "wrong: still transposed"
    assert judged("a", 1.0, hint="take the root") == "wrong: expected a number, got str"
    assert judged(0.7, 1.0, hint="take the root") == "wrong: take the root"


def test_a_dtype_is_asked_where_the_text_names_one() -> None:
    right = torch.ones(3).bfloat16()
    assert judged(right, right, dtype=torch.bfloat16) == "right"
    assert "expected dtype torch.bfloat16, got list" in judged(
        [1.0, 1.0, 1.0], right, dtype=torch.bfloat16
    )


def test_a_list_that_is_sorted_in_place_is_overwritten() -> None:
    @grader
    def smallest(answer: Answer) -> Grading:
        """Grade `answer(losses)`."""
        yield Question(([3.0, 1.0, 2.0],), 1.0)

    def sorting(losses: list[float]) -> float:
        losses.sort()
        return losses[0]

    assert smallest(min) == "right"
    assert smallest(sorting).startswith("wrong: it overwrites losses")


def test_arguments_that_are_to_change_may_change_and_no_others() -> None:
    @grader
    def buffers(answer: Answer) -> Grading:
        """Grade `answer(x, running_mean)`."""
        running_mean = torch.zeros(4)
        answer.updating((1,), X, running_mean)
        yield "" if running_mean.all() else "the running mean does not move"

    assert buffers(lambda x, running_mean: running_mean.add_(1)) == "right"
    assert "overwrites x" in buffers(lambda x, running_mean: x.copy_(x + 1))
    assert "does not move" in buffers(lambda x, running_mean: x)


def test_a_call_of_the_answer_in_place_of_its_name_is_told() -> None:
    assert check(by_hand(X)) == "wrong: expected a function, got Tensor: give its name, without ( )"
