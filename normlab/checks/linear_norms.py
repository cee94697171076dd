"""A linear map followed by a norm, for every norm of which invariances are claimed.

An invariance is a statement about the pair: what happens to Norm(W x + b) when W or x change.
The layers themselves see only the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.layers import batch_norm, group_norm, instance_norm, layer_norm, prms_norm, rms_norm

__all__ = ["LINEAR_NORMS", "LinearNorm", "over_features", "weight_norm"]

SMALLEST_EPS = 1e-300  # batch norm in training refuses 0, as torch does


def weight_norm(direction: Tensor, length: Tensor | None = None) -> Tensor:
    r"""Give every row of a weight matrix the length that is asked for.

    .. math:: W_{i:} = g_i \frac{V_{i:}}{\lVert V_{i:} \rVert}

    Args:
        direction: V, of which only the direction of each row counts.
        length: g, or None for rows of length 1.

    Shape:
        direction (out, in); length (out,); returns (out, in).

    Conventions:
        no `eps`: a row of zeros has no direction and gives NaN.

    Source:
        salimans2016weight, Eq. 2.

    Example:
        >>> weight_norm(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    rows = direction / direction.square().sum(1, keepdim=True).sqrt()
    return rows if length is None else rows * length[:, None]


def _summed_inputs(weight: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    a = torch.einsum("oi,nil->nol", weight, x)
    return a if bias is None else a + bias[:, None]


@dataclass(frozen=True)
class LinearNorm:
    """Norm(W x + b), without weight and bias of the norm itself.

    Attributes:
        norm: maps the summed inputs (N, out, L) and `eps` to the same shape; None where the
            norm acts on the weight alone.
        positions: L; 1 for a layer that sees plain vectors.
        parameterize: what is done to W before the product, if anything.
    """

    norm: Callable[[Tensor, float], Tensor] | None
    positions: int = 1
    parameterize: Callable[[Tensor], Tensor] | None = None

    def __call__(
        self, weight: Tensor, x: Tensor, bias: Tensor | None = None, *, eps: float = 0.0
    ) -> Tensor:
        """Compute Norm(W x + b).

        Args:
            weight: (out, in).
            x: (N, in, L).
            bias: (out,), added before the norm, or None.
            eps: of the norm; units of the summed inputs squared.

        Shape:
            returns (N, out, L).
        """
        if self.parameterize is not None:
            weight = self.parameterize(weight)
        a = _summed_inputs(weight, x, bias)
        return a if self.norm is None else self.norm(a, eps)


def _batch_norm(a: Tensor, eps: float) -> Tensor:
    return batch_norm(a, None, None, training=True, eps=max(eps, SMALLEST_EPS))


def _frozen_batch_norm(a: Tensor, eps: float) -> Tensor:
    mean, var = a.new_full((a.shape[1],), 0.3), a.new_full((a.shape[1],), 2.0)
    return batch_norm(a, mean, var, training=False, eps=eps)


def _instance_norm(a: Tensor, eps: float) -> Tensor:
    return instance_norm(a, eps=eps)


def over_features(norm: Callable[..., Tensor]) -> LinearNorm:
    """Put a norm of the trailing axis, such as `layer_norm`, behind a linear map.

    Args:
        norm: called as `norm(a, normalized_shape, eps=eps)`.
    """

    def apply(a: Tensor, eps: float) -> Tensor:
        y: Tensor = norm(a.movedim(1, -1), (a.shape[1],), eps=eps)
        return y.movedim(-1, 1)

    return LinearNorm(apply)


def _half_prms_norm(a: Tensor, normalized_shape: tuple[int, ...], eps: float) -> Tensor:
    return prms_norm(a, normalized_shape, eps=eps, p=0.5)


def _two_groups(a: Tensor, eps: float) -> Tensor:
    return group_norm(a, 2, eps=eps)


LINEAR_NORMS: dict[str, LinearNorm] = {
    "batch_norm": LinearNorm(_batch_norm),
    "weight_norm": LinearNorm(None, parameterize=weight_norm),
    "layer_norm": over_features(layer_norm),
    "rms_norm": over_features(rms_norm),
    "prms_norm": over_features(_half_prms_norm),
    "group_norm": LinearNorm(_two_groups),
    "group_norm_positions": LinearNorm(_two_groups, positions=4),
    "instance_norm": LinearNorm(_instance_norm, positions=4),
    "batch_norm_frozen": LinearNorm(_frozen_batch_norm),
}
