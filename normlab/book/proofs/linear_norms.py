"""A linear map followed by a norm, for every norm of which invariances are claimed.

An invariance is a statement about the pair: what happens to Norm(W x + b) when W or x change.
The layers themselves see only the product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from normlab import layers
from normlab.layers import batch_norm, prms_norm
from normlab.norms import NORMS

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
        a = torch.einsum("oi,nil->nol", weight, x)
        a = a if bias is None else a + bias[:, None]
        return a if self.norm is None else self.norm(a, eps)


def _frozen_batch_norm(a: Tensor, eps: float) -> Tensor:
    mean, var = a.new_full((a.shape[1],), 0.3), a.new_full((a.shape[1],), 2.0)
    return batch_norm(a, mean, var, training=False, eps=eps)


def over_features(norm: Callable[..., Tensor]) -> LinearNorm:
    """Put a norm of the trailing axis, such as `layer_norm`, behind a linear map.

    Args:
        norm: called as `norm(a, normalized_shape, eps=eps)`.
    """

    def apply(a: Tensor, eps: float) -> Tensor:
        y: Tensor = norm(a.movedim(1, -1), (a.shape[1],), eps=eps)
        return y.movedim(-1, 1)

    return LinearNorm(apply)


def _behind_a_linear_map(name: str, positions: int = 1) -> LinearNorm:
    record = NORMS[name]

    def call(a: Tensor, shape: tuple[int, ...], eps: float) -> Tensor:
        eps = max(eps, SMALLEST_EPS) if record.over_batch else eps
        known: dict[str, Tensor] = {}
        if "r_max" in record.signature:
            size = a.shape[1]
            known = {"running_mean": a.new_zeros(size), "running_var": a.new_ones(size)}
        arguments = record.arguments(normalized_shape=shape, num_groups=2, eps=eps, **known)
        y: Tensor = getattr(layers, name)(a, *arguments)
        return y

    if record.trailing:
        return over_features(call)
    positions = 4 if record.needs_positions else positions
    return LinearNorm(lambda a, eps: call(a, (), eps), positions=positions)


# variants without a record, each after its norm in the table
_VARIANTS: dict[str, dict[str, LinearNorm]] = {
    "batch_norm": {"weight_norm": LinearNorm(None, parameterize=weight_norm)},
    "rms_norm": {"prms_norm": over_features(functools.partial(prms_norm, p=0.5))},
    "group_norm": {"group_norm_positions": _behind_a_linear_map("group_norm", positions=4)},
    "instance_norm": {"batch_norm_frozen": LinearNorm(_frozen_batch_norm)},
}

LINEAR_NORMS: dict[str, LinearNorm] = {
    key: norm
    for name in NORMS
    for key, norm in {name: _behind_a_linear_map(name), **_VARIANTS.get(name, {})}.items()
}
