"""Which norms of torch have right second derivatives when weight or bias is missing?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from normlab import layers
from normlab.book.experiments.sweep import experiment
from normlab.norms import NORMS

FEATURES = 6  # length of the last axis, and number of channels
Norm = Literal["layer_norm", "batch_norm", "instance_norm", "group_norm"]
Through = Literal["input", "bias", "input and bias"]


def _second_derivative(
    function: Callable[..., Tensor], norm: Norm, weight: bool, bias: bool, through: str
) -> Tensor | None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    shape = (5, FEATURES, FEATURES)
    x, dy, b = (random(*s).requires_grad_() for s in (shape, shape, (FEATURES,)))
    direction, w, bias_direction = random(*shape), random(FEATURES), random(FEATURES)
    given = {"weight": w if weight else None, "bias": b if bias else None}
    y = function(x, *NORMS[norm].arguments(normalized_shape=(FEATURES,), num_groups=2, **given))
    wanted = {"input": [x], "bias": [b], "input and bias": [x, b]}[through]
    first = torch.autograd.grad(y, wanted, dy, create_graph=True)
    directions = {x: direction, b: bias_direction}
    terms = [(g * directions[t]).sum() for g, t in zip(first, wanted, strict=True)]
    (second,) = torch.autograd.grad(torch.stack(terms).sum(), dy, allow_unused=True)
    return second


@experiment(
    norm=get_args(Norm),
    weight=(True, False),
    bias=(True, False),
    through=get_args(Through),
    # a gradient by the bias needs a bias
    skip=lambda bias, through: not bias and through != "input",
)
def double_backward(norm: Norm, weight: bool, bias: bool, through: Through) -> dict[str, str]:
    """Differentiate a function of first derivatives once more, in float64.

    It is a random linear function of the gradient by the input, of that by the bias, or of both.
    Its gradient by the upstream gradient is compared with that of our own layer, which consists of
    operations that can be differentiated twice.

    Args:
        through: which first derivatives the function takes.

    Returns:
        verdict: "right"; "missing" when torch returns nothing where the truth is not 0; "wrong";
            "raises".
        message: of the exception, or "".
    """
    case = (norm, weight, bias, through)
    expected = _second_derivative(getattr(layers, norm), *case)
    try:
        got = _second_derivative(getattr(functional, norm), *case)
    except RuntimeError as error:
        return {"verdict": "raises", "message": str(error).splitlines()[0]}
    if expected is None or got is None:
        verdict = "right" if expected is got else "missing"
    else:
        right = torch.allclose(got, expected, rtol=1e-8, atol=1e-10)
        verdict = "right" if right else "wrong"
    return {"verdict": verdict, "message": ""}
