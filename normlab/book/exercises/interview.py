"""Graders of the tasks on a blank page; most hand the answer to the checks of whole layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normlab.book.exercises.grading import (
    Answer,
    Grading,
    Question,
    as_array,
    grader,
    random,
    what_fails,
)
from normlab.checks.conformance import check_layer
from normlab.checks.mistakes import MISTAKES
from normlab.checks.mutants import LAYER_NORM_MUTANTS, LAYER_NORM_NAMES
from normlab.layers import batch_norm, rms_norm

HALF = (torch.float16, torch.bfloat16)


def _rows() -> tuple[Tensor, Tensor, Tensor, float]:
    """A plain x with weight, bias and eps; where these raise, no others need to be tried."""
    return random(3, 4, seed=0), torch.ones(4).double(), torch.zeros(4).double(), 1e-5


def _upcast(x: Tensor) -> Tensor:
    return x.float() if x.dtype in HALF else x


def _unlike_tensor(name: str, value: Any) -> str:
    got = type(value).__name__
    return "" if isinstance(value, Tensor) else f"{name}: expected a torch tensor, got {got}"


def _in_rows(input: Tensor, normalized_shape: Sequence[int]) -> Tensor:
    size = torch.Size(normalized_shape).numel()
    return _upcast(input).reshape(input.numel() // max(size, 1), size)


def _or_default(value: Tensor | None, default: Tensor) -> Tensor:
    return default if value is None else _upcast(value).reshape(default.shape)


def _on_rows(answer: Callable[..., Any]) -> Callable[..., Tensor]:
    """torch's layer norm, made of one for rows with weight and bias."""

    def layer(
        input: Tensor,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        x = _in_rows(input, normalized_shape)
        weight = _or_default(weight, x.new_ones(x.shape[-1]))
        bias = _or_default(bias, x.new_zeros(x.shape[-1]))
        # the reader is promised some rows
        y = answer(x, weight, bias, eps) if x.numel() else x * weight + bias
        return y.reshape(input.shape).to(input.dtype)

    return layer


@grader(forbids=("autograd", "layer_norm"))
def check_layer_norm_pair(forward: Answer, backward: Answer) -> Grading:
    """Grade LayerNorm with a gradient written by hand, for x of shape (N, D), N at least 1.

    `forward(x, weight, bias, eps) -> (y, cache)`; `backward(dy, cache) -> (dx, dweight, dbias)`.
    """

    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
            y, ctx.cache = forward(x, weight, bias, eps)
            return y

        @staticmethod
        def backward(ctx: Any, *dy: Tensor) -> Any:
            return (*backward(dy[0], ctx.cache), None)

    made = forward(*_rows())
    if not isinstance(made, tuple | list) or len(made) != 2:
        yield f"expected (y, cache) of the forward pass, got {type(made).__name__}"
    yield _unlike_tensor("y", made[0])
    gradients = backward(random(3, 4, seed=1), made[1])
    if not isinstance(gradients, tuple | list) or len(gradients) != 3:
        yield f"expected (dx, dweight, dbias) of the backward pass, got {type(gradients).__name__}"
    for name, gradient, shape in zip(
        ("dx", "dweight", "dbias"), gradients, ((3, 4), (4,), (4,)), strict=True
    ):
        yield _unlike_tensor(name, gradient)
        if (got := tuple(gradient.shape)) != shape:
            yield f"{name} has the shape of what it belongs to: expected {shape}, got {got}"
    yield what_fails(check_layer(_on_rows(ByHand.apply), like="layer_norm"))


@grader(forbids=("batch_norm",))
def check_batch_norm(answer: Answer) -> Grading:
    """Grade `answer(x, running_mean, running_var, weight, bias, training, momentum, eps) -> y`.

    BatchNorm of the columns of x, shape (N, C); in training it changes the buffers in place.
    Images and half precision are taken care of before the answer is called.
    """

    def layer(
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        channels_last = _upcast(input).movedim(1, -1)
        x = channels_last.reshape(-1, input.shape[1])
        zeros, ones = x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
        if running_mean is None or running_var is None:
            running_mean, running_var, training = zeros.clone(), ones.clone(), True
        if training and x.shape[0] < 2:
            raise ValueError(f"Expected more than 1 value per channel, got {tuple(input.shape)}")
        weight, bias = _or_default(weight, ones), _or_default(bias, zeros)
        y = answer.updating(
            (1, 2), x, running_mean, running_var, weight, bias, training, momentum, eps
        )
        return y.reshape(channels_last.shape).movedim(-1, 1).to(input.dtype)

    x, weight, bias, eps = _rows()
    mean, var = bias.clone(), weight.clone()
    y = answer.updating((1, 2), x, mean, var, weight, bias, True, 0.1, eps)
    mistakes = {
        f"in training the batch is normalized with its own mean and variance, not with the "
        f"running ones{when}": ((x - m) * (v + eps).rsqrt())
        for when, m, v in (("", mean, var), (" before their update", bias, weight))
    }
    yield Question((), batch_norm(x, None, None, training=True, eps=eps), mistakes).known(y)
    yield what_fails(check_layer(layer, like="batch_norm"))


@grader(forbids=("rms_norm",))
def check_rms_norm(answer: Answer) -> Grading:
    """Grade `answer(input, normalized_shape, weight=None, eps=None) -> y`, torch's RMSNorm.

    Nothing is taken care of here: half precision, several axes, no weight, `eps` None.
    """
    answer(_rows()[0], (4,))
    x = random(3, 2, 4, seed=6).float()
    last = {
        "the mean is taken over all axes of normalized_shape, not over the last alone": (
            rms_norm(x, (4,), eps=0.1)
        )
    }
    yield Question((), rms_norm(x, (2, 4), eps=0.1), last).known(answer(x, (2, 4), None, 0.1))
    in_half = [_in_half(dtype) for dtype in HALF]
    for question in in_half:
        yield question.known(answer(*question.args))
    yield what_fails(check_layer(answer, like="rms_norm"))
    small = 1e-4 * x
    mistakes = {
        "an eps of 0 is a number, too; of eps ask whether it is None": (
            rms_norm(small, (4,), eps=None)
        )
    }
    yield Question((small, (4,), None, 0.0), rms_norm(small, (4,), eps=0.0), mistakes)
    yield from in_half


def _in_half(dtype: torch.dtype) -> Question:
    """Without eps, in 16 bits."""
    x = (1e-2 * random(3, 4, seed=5)).to(dtype)
    mistakes = {
        f"eps=None is the machine epsilon of the dtype that you compute in, not of {dtype}": (
            rms_norm(x, (4,), eps=torch.finfo(dtype).eps)
        )
    }
    return Question((x, (4,)), rms_norm(x, (4,)), mistakes, tolerance=2**-8, dtype=dtype)


# samples are rows; two decimals of the right answer and of each mistake differ in some value
TABLE = [[8, 4, 0, 6], [7, 5, 9, 4], [7, 0, 0, 7]]
TWO_DECIMALS = 0.0100001  # so much is lost where the rest is cut off


@grader
def check_by_hand(answer: Answer) -> Grading:
    """Grade `answer() -> (layer, batch, rms)`: the first entry of `TABLE` after each norm.

    Two decimals, rounded or cut off; eps is 0, weight 1, bias 0.
    """

    def norm(x: np.ndarray, correction: int = 0) -> float:
        return float((x[0] - x.mean()) / x.std(ddof=correction))

    def root_mean_square(x: np.ndarray) -> float:
        return float(np.sqrt((x**2).mean()))

    table = np.array(TABLE)
    row, column = table[0], table[:, 0]
    right = layer, batch, rms = norm(row), norm(column), row[0] / root_mean_square(row)
    mistakes = {
        "layer norm takes the row and batch norm the column": (batch, layer, rms),
        "the divisor of the variance is n, not n - 1": (norm(row, 1), norm(column, 1), rms),
        "divide by the standard deviation, not by the variance": (
            layer / row.std(),
            batch / column.std(),
            rms,
        ),
        "RMS norm subtracts nothing": (layer, batch, layer),
        "RMS norm takes the row, like layer norm": (
            layer,
            batch,
            column[0] / root_mean_square(column),
        ),
    }
    yield Question((), right, mistakes, tolerance=0.025)
    for place, (got, value) in enumerate(zip(as_array(answer()), right, strict=True), start=1):
        if Question((), value, tolerance=TWO_DECIMALS / abs(value)).judge(got):
            yield f"value {place} of 3 is close; two decimals are asked for"


WRONG_LAYERS = (
    "eps_outside",
    "bessel_corrected",
    "uncentered_numerator",
    "wrong_axis",
    "detached_statistics",
    "backward_without_mean_term",
    "weight_after_projection",
)
_WRONG = "backward_without_mean_term"


def wrong_layer(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer norm with one mistake of `WRONG_LAYERS`, called like torch's function."""
    return LAYER_NORM_MUTANTS[_WRONG](input, normalized_shape, weight, bias, eps)


@grader
def check_diagnosis(answer: Answer) -> Grading:
    """Grade `answer() -> name`, one of `WRONG_LAYERS`: the mistake of `wrong_layer`.

    Returns:
        "right", "not answered yet", or where to look.
    """
    name = answer()
    if not isinstance(name, str) or name not in WRONG_LAYERS:
        yield f"got {name!r}; expected one of {', '.join(WRONG_LAYERS)}"
    if name == _WRONG:
        yield ""
    elif MISTAKES[LAYER_NORM_NAMES[name]].needs != "gradients":
        yield "its outputs agree with torch's; look at the gradients"
    else:
        yield "that mistake gives other gradients; write down which term each one loses"
