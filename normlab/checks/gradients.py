"""Hand-derived gradients against autograd and against finite differences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from normlab import layers, reference
from normlab.norms import find_norm


def _finite_differences(
    loss: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-5
) -> np.ndarray:
    """Central differences, whose error is step² from the formula and 1e-16 / step from rounding."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (loss(up) - loss(down)) / (2 * step)
    return gradient


def compare_backwards(
    name: str,
    x: ArrayLike,
    dy: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    num_groups: int | None = None,
) -> dict[str, dict[str, float]]:
    """Distance of each other way to compute a gradient from the closed form.

    The loss is the sum of `dy * y`, whose gradient by y is `dy`. A plain sum would not do: its
    gradient by x is zero through every centered norm, so that it agrees with wrong formulas.

    Args:
        name: a norm of :mod:`normlab.reference`, such as "batch_norm" (in training), "layer_norm"
            (over the last axis) or "group_norm".
        x: input.
        dy: gradient by the output, of the input's shape.
        weight: as the norm takes it, or None.
        bias: as the norm takes it, or None.
        eps: units of x².
        num_groups: for "group_norm".

    Returns:
        for "node by node", "autograd" and "finite differences": the largest difference by "dx",
        "dweight", "dbias", divided by the largest magnitude of the closed form, or of `dy` where
        the closed form is zero.

    Raises:
        ValueError: an unknown name, or a norm without a reference.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, dy = rng.normal(size=(2, 4, 5))
        >>> found = compare_backwards("layer_norm", x, dy)
        >>> {way: errors["dx"] < 1e-8 for way, errors in found.items()}
        {'node by node': True, 'autograd': True, 'finite differences': True}
    """
    x, dy = np.asarray(x, np.float64), np.asarray(dy, np.float64)
    norm = find_norm(name)
    if name not in reference.__all__:
        raise ValueError(f"name: got {name!r}; expected a norm of normlab.reference")
    values: dict[str, Any] = {
        "normalized_shape": (x.shape[-1],),
        "num_groups": num_groups,
        "eps": eps,
    }
    parameters = {
        key: np.asarray(value, np.float64)
        for key, value in (("weight", weight), ("bias", bias))
        if value is not None
    }
    forward = getattr(reference, name)

    def loss(key: str, value: np.ndarray) -> float:
        given = {"x": x} | parameters | {key: value}
        y, _ = forward(given.pop("x"), *norm.arguments(**values, **given))
        return float((y * dy).sum())

    _, cache = forward(x, *norm.arguments(**values, **parameters))
    closed = getattr(reference, f"{name}_backward")(dy, cache)._asdict()
    closed = {key: value for key, value in closed.items() if value is not None}

    by_node = getattr(reference, f"{name}_backward_by_node")
    ways = {
        "node by node": {"dx": by_node(dy, cache)["x"]},
        "autograd": _autograd(name, x, dy, values, parameters),
        "finite differences": {
            f"d{key}": _finite_differences(functools.partial(loss, key), value)
            for key, value in ({"x": x} | parameters).items()
        },
    }
    return {
        way: {key: _relative(found, closed[key], dy) for key, found in gradients.items()}
        for way, gradients in ways.items()
    }


def _relative(found: np.ndarray, closed: np.ndarray, dy: np.ndarray) -> float:
    largest, upstream = float(np.abs(closed).max()), float(np.abs(dy).max())
    # a gradient that is zero but for rounding is measured by what was subtracted to get it
    scale = largest if largest > 1e-9 * upstream else upstream
    return float(np.abs(found - closed).max()) / scale


def _autograd(
    name: str,
    x: np.ndarray,
    dy: np.ndarray,
    values: dict[str, Any],
    parameters: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    leaf = torch.tensor(x, requires_grad=True)
    leaves = {key: torch.tensor(value, requires_grad=True) for key, value in parameters.items()}
    y = getattr(layers, name)(leaf, *find_norm(name).arguments(**values, **leaves))
    y.backward(torch.tensor(dy))
    found = {"dx": leaf.grad} | {f"d{key}": tensor.grad for key, tensor in leaves.items()}
    return {key: grad.numpy() for key, grad in found.items() if grad is not None}
