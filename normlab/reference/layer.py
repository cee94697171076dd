"""LayerNorm in NumPy: forward, closed-form backward, node-by-node backward, Jacobian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.norms import reduced_axes
from normlab.reference.standardization import (
    Gradients,
    affine,
    affine_backward,
    as_gradients,
    standardize,
    standardize_backward,
    standardize_backward_by_node,
    standardize_jacobian,
)
from normlab.reference.validation import as_float64, as_normalized, check_shape_norm, check_upstream


class LayerNormCache(NamedTuple):
    """What the backward pass needs; all arrays have the input's number of axes.

    Attributes:
        rstd: 1 / sqrt(var + eps), with size 1 along `axes`; units 1/x.
        normalized_shape: of weight and bias outside.
    """

    x_hat: np.ndarray
    rstd: np.ndarray
    weight: np.ndarray | None
    bias: np.ndarray | None
    axes: tuple[int, ...]
    normalized_shape: tuple[int, ...]


def layer_norm(
    input: ArrayLike,
    normalized_shape: Sequence[int],
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
) -> tuple[np.ndarray, LayerNormCache]:
    r"""Normalize each sample over its trailing `normalized_shape`, in float64.

    .. math:: y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot w + b

    The arguments are those of :func:`normlab.layers.layer_norm`, as arrays of real numbers.

    Raises:
        ValueError: a shape that does not fit.
        TypeError: `normalized_shape` is not a sequence, or an argument is not real numbers.

    Conventions:
        divisor H; `eps` inside the root.

    Source:
        ba2016layer, Eq. 3 and 4 (without `eps` there).

    Example:
        >>> y, _ = layer_norm([[1.0, 3.0]], (2,), eps=0.0)
        >>> y
        array([[-1.,  1.]])
    """
    x = as_float64("input", input)
    shape = check_shape_norm(x, normalized_shape)
    axes = reduced_axes("layer_norm", x.ndim, normalized_ndim=len(shape))
    w = as_normalized("weight", weight, x, shape)
    b = as_normalized("bias", bias, x, shape)
    x_hat, rstd, _, _ = standardize(x, axes, eps)
    return affine(x_hat, w, b), LayerNormCache(x_hat, rstd, w, b, axes, shape)


def layer_norm_backward(dy: ArrayLike, cache: LayerNormCache) -> Gradients:
    r"""Gradients of :func:`layer_norm` in closed form.

    .. math:: dx = r\left(g - \bar g - \hat x \, \overline{g \odot \hat x}\right), \quad
              g = dy \odot w, \quad dw = \sum dy \odot \hat x, \quad db = \sum dy

    The bars are means over the features of a sample; the sums run over samples.

    Source:
        ba2016layer gives no backward; ioffe2015batch, Section 3, with the roles of batch and
        features exchanged.
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    dx_hat, dweight, dbias = affine_backward(dy, cache.x_hat, cache.weight, cache.bias)
    dx = standardize_backward(dx_hat, cache.x_hat, cache.rstd, cache.axes)
    return as_gradients(dx, dweight, dbias, cache.normalized_shape)


def layer_norm_backward_by_node(dy: ArrayLike, cache: LayerNormCache) -> dict[str, np.ndarray]:
    """The same gradients one node of the computation graph at a time.

    The graph is mean → centered → var → rstd → x_hat → y; each entry is the gradient of the
    loss by the node of that name, in the order in which the chain rule reaches it.

    Source:
        ioffe2015batch, Section 3 (the six derivatives there, over features).
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    dx_hat = dy if cache.weight is None else dy * cache.weight
    return standardize_backward_by_node(dx_hat, cache.x_hat, cache.rstd, cache.axes)


def layer_norm_jacobian(x: ArrayLike, eps: float = 1e-5) -> np.ndarray:
    r"""Jacobian (H, H) of LayerNorm without parameters at one row (H,); units 1/x.

    .. math:: J = r \left( I - \frac{1}{H} 11^\top - \frac{1}{H} \hat x \hat x^\top \right)

    With `eps` 0 the bracket is the projection onto the space orthogonal to 1 and to x̂.

    Source:
        the closed form of :func:`layer_norm_backward` for each unit vector; see also
        xu2019understanding, Section 3.

    Example:
        >>> int(np.linalg.matrix_rank(layer_norm_jacobian([1.0, 2.0, 4.0], eps=0.0)))
        1
    """
    return standardize_jacobian(x, eps)
