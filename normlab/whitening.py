r"""Whitening: a linear map after which the features of a batch have the identity as covariance.

With the covariance :math:`\Sigma` of the batch, :math:`y = W (x - \mu)` is white when
:math:`W \Sigma W^\top = I`. That leaves a rotation free, so there are several whitenings; the
functions here compute their matrices. Decorrelated features are in general not independent.

A covariance is (C, C), symmetric and, but for Newton-Schulz, of full rank; a matrix is (C, C).
A covariance that is not floating point raises a TypeError; one that is not square, not finite or
of too low a rank a ValueError.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

__all__ = [
    "METHODS",
    "Method",
    "Whitened",
    "cholesky_matrix",
    "make_covariance",
    "newton_schulz_matrix",
    "pca_matrix",
    "uncoupled_newton_schulz_matrix",
    "whiten",
    "zca_matrix",
]

Method = Literal["pca", "zca", "cholesky", "newton_schulz"]
METHODS: tuple[Method, ...] = get_args(Method)


class Whitened(NamedTuple):
    """What :func:`whiten` returns."""

    y: Tensor  #: (N, C), the whitened batch, `(x - mean) @ matrix.T`
    mean: Tensor  #: (C,), of the batch
    matrix: Tensor  #: (C, C)


def make_covariance(x: Tensor) -> Tensor:
    r"""Covariance (C, C) of the features of a batch x (N, C), of rank at most N - 1.

    .. math:: \Sigma = \frac1N \sum_n (x_n - \mu) (x_n - \mu)^\top

    The divisor is N, as in batch norm.

    Example:
        >>> make_covariance(torch.tensor([[0.0, 0.0], [2.0, 4.0]]))
        tensor([[1., 2.],
                [2., 4.]])
    """
    _check_batch(x)
    centered = x - x.mean(0)
    return centered.T @ centered / x.shape[0]


def pca_matrix(covariance: Tensor) -> Tensor:
    r"""Rotate onto the principal axes, then scale each: :math:`\Lambda^{-1/2} U^\top`.

    Axes by falling variance; the largest component of each axis is positive. Where two variances
    are equal their axes are arbitrary, and so is the gradient.
    """
    values, vectors = _spectrum(covariance)
    values, vectors = values.flip(0), vectors.flip(1)
    largest = vectors.abs().argmax(0, keepdim=True)
    vectors = vectors * vectors.gather(0, largest).sign()
    return vectors.T / values.sqrt()[:, None]


def zca_matrix(covariance: Tensor) -> Tensor:
    r"""The symmetric whitening matrix, :math:`\Sigma^{-1/2} = U \Lambda^{-1/2} U^\top`.

    Of all whitenings it moves the data least in the mean square. The gradient is that of the
    eigendecomposition, which is not finite where two variances are equal;
    :func:`newton_schulz_matrix` has no such points.

    Source:
        huang2018decorrelated, Section 3.
    """
    values, vectors = _spectrum(covariance)
    return (vectors / values.sqrt()) @ vectors.T


def cholesky_matrix(covariance: Tensor) -> Tensor:
    r"""The lower triangular whitening matrix, :math:`L^{-1}` with :math:`\Sigma = L L^\top`.

    The first feature is only scaled; each later one loses what the earlier ones predict of it.
    Differentiable wherever it is defined.
    """
    _spectrum(covariance.detach())  # a factor of a singular matrix may exist by rounding
    factor = torch.linalg.cholesky(covariance)
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return torch.linalg.solve_triangular(factor, eye, upper=False)


def newton_schulz_matrix(covariance: Tensor, *, steps: int = 5) -> Tensor:
    r"""Approach :math:`\Sigma^{-1/2}` by products of matrices alone, in the stable form.

    .. math::
        M_k = \tfrac12 (3 I - Z_k Y_k), \quad Y_{k+1} = Y_k M_k, \quad Z_{k+1} = M_k Z_k

    with :math:`Y_0 = \Sigma / \operatorname{tr} \Sigma` and :math:`Z_0 = I`; then
    :math:`Z_k / \sqrt{\operatorname{tr} \Sigma}` tends to the ZCA matrix. The covariance needs a
    positive trace and no full rank: directions without variance are scaled by at most
    :math:`1.5^{steps}`. Differentiable everywhere, by autograd through the steps.

    Source:
        higham1997stable; applied to activations in the form of
        :func:`uncoupled_newton_schulz_matrix` by huang2019iterative.
    """
    y, z, trace = _start(covariance, steps)
    three = 3 * z
    for _ in range(steps):
        m = (three - z @ y) / 2
        y, z = y @ m, m @ z
    return z / trace.sqrt()


def uncoupled_newton_schulz_matrix(covariance: Tensor, *, steps: int = 5) -> Tensor:
    r"""The same iterates in exact arithmetic, in a form that amplifies rounding errors.

    .. math:: P_{k+1} = \tfrac12 (3 P_k - P_k^3 \, \Sigma / \operatorname{tr} \Sigma)

    Kept as a specimen: once it has converged, an error grows by the factor
    :math:`|1 - (\sqrt\kappa + \kappa) / 2|` in every further step, for the condition number
    :math:`\kappa` of the covariance, until entries are not finite.

    Source:
        huang2019iterative, Algorithm 1.
    """
    scaled, p, trace = _start(covariance, steps)
    for _ in range(steps):
        p = (3 * p - p @ p @ p @ scaled) / 2
    return p / trace.sqrt()


def whiten(x: Tensor, method: Method = "zca", *, eps: float = 0.0, steps: int = 5) -> Whitened:
    r"""Whiten a batch x (N, C) with its own mean and covariance, differentiably.

    .. math:: y = W (x - \mu), \qquad W (\Sigma + \epsilon I) W^\top = I

    Args:
        method: "newton_schulz" is approximate.
        eps: added to the diagonal of the covariance; units of x².
        steps: of the Newton-Schulz iteration; the other methods take none.

    Raises:
        ValueError: `eps` is negative, the method is unknown, or an exact method with `eps` = 0
            meets a covariance that cannot have full rank (N at most C) or does not have it.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [2.0, 0.0], [4.0, 2.0]])
        >>> make_covariance(whiten(x, "cholesky").y).round(decimals=3)
        tensor([[1., 0.],
                [0., 1.]])
    """
    if method not in METHODS:
        raise ValueError(f"method: got {method!r}; expected one of {', '.join(map(repr, METHODS))}")
    if not eps >= 0:
        raise ValueError(f"eps: got {eps}; expected a number that is not negative")
    covariance = make_covariance(x)
    samples, features = x.shape
    if method != "newton_schulz" and eps == 0 and samples <= features:
        raise ValueError(
            f"x: {samples} samples of {features} features; their covariance has rank at most "
            f"{samples - 1}, so it has no inverse root. Use at least {features + 1} samples, "
            "whiten groups of fewer features, or pass eps > 0"
        )
    covariance = covariance + eps * torch.eye(features, dtype=x.dtype, device=x.device)
    if method == "newton_schulz":
        matrix = newton_schulz_matrix(covariance, steps=steps)
    else:
        matrix = _EXACT[method](covariance)
    mean = x.mean(0)
    return Whitened((x - mean) @ matrix.T, mean, matrix)


_EXACT = {"pca": pca_matrix, "zca": zca_matrix, "cholesky": cholesky_matrix}


def _check_batch(x: Tensor) -> None:
    if not x.dtype.is_floating_point:
        raise TypeError(f"x: got {x.dtype}; expected a floating dtype. Convert with x.float()")
    if x.dim() != 2 or 0 in x.shape:
        raise ValueError(
            f"x: got shape {tuple(x.shape)}; expected (N, C), neither zero. Bring features last "
            "and flatten the other axes, as in x.movedim(1, -1).flatten(0, -2) for (N, C, *)"
        )


def _check_covariance(covariance: Tensor) -> None:
    if not covariance.dtype.is_floating_point:
        raise TypeError(f"covariance: got {covariance.dtype}; expected a floating dtype")
    shape = tuple(covariance.shape)
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise ValueError(f"covariance: got shape {shape}; expected (C, C); see make_covariance")
    if not covariance.isfinite().all():
        raise ValueError("covariance: has entries that are not finite; look for them in the batch")


def _spectrum(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, rising, and eigenvectors, of a covariance of full rank."""
    _check_covariance(covariance)
    values, vectors = torch.linalg.eigh(covariance)
    smallest, largest = values[0].item(), values[-1].item()
    # Rounding alone puts the zero eigenvalues of a singular matrix somewhere below this.
    if smallest <= len(covariance) * torch.finfo(covariance.dtype).eps * abs(largest):
        raise ValueError(
            f"covariance: its variances run from {smallest:.1e} to {largest:.1e}, so it is "
            "singular to working precision. Drop constant or duplicated features, use more "
            "samples, or add eps > 0 to its diagonal"
        )
    return values, vectors


def _start(covariance: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Covariance over its trace, identity and trace, where the iterations start."""
    _check_covariance(covariance)
    if not isinstance(steps, int) or isinstance(steps, bool):
        raise TypeError(f"steps: got {steps!r}; expected an integer")
    if steps < 0:
        raise ValueError(f"steps: got {steps}; expected 0 or more")
    trace = covariance.trace()
    if not trace > 0:
        raise ValueError(
            f"covariance: got trace {trace.item():g}; expected a positive one. A batch whose "
            "samples are all equal has nothing to whiten"
        )
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return covariance / trace, eye, trace
