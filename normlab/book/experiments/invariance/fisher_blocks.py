"""The curvature that a norm gives to its weights: a factor of 4, and blocks that are missing."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.proofs.invariances import find_linear_norm, make_problem


def fisher_matrix(norm: str, weight: Tensor, x: Tensor, *, own_only: bool = False) -> Tensor:
    r"""Fisher matrix of the weights for unit Gaussian outputs around Norm(W x).

    .. math:: F_{ij} = \operatorname{E}_x \sum_k
              \Big(\frac{\partial y_k}{\partial w_i}\Big)^{\top}
              \frac{\partial y_k}{\partial w_j}

    Args:
        norm: a key of LINEAR_NORMS.
        weight: (out, in).
        x: (N, in, 1).
        own_only: let output k depend on its own row only; block (i, j) is then 0 for i ≠ j, and
            the sum of block (i, i) has one term.

    Shape:
        returns (out, in, out, in).

    Source:
        ba2016layer, Eq. 13, has the blocks of `own_only`.
    """
    layer = find_linear_norm(norm)
    jacobian = torch.func.jacrev(lambda w: layer(w, x)[:, :, 0])(weight)  # (N, out, out, in)
    if own_only:
        own = torch.eye(weight.shape[0], dtype=weight.dtype)
        jacobian = jacobian * own[None, :, :, None]
    return torch.einsum("nkid,nkje->idje", jacobian, jacobian) / len(x)


def _block_norms(fisher: Tensor) -> Tensor:
    return fisher.square().sum((1, 3)).sqrt()  # (out, out)


def _curvature_ratio(norm: str, weight: Tensor, doubled: Tensor, x: Tensor) -> float:
    before, after = (_block_norms(fisher_matrix(norm, w, x))[0, 0] for w in (weight, doubled))
    return float(after / before)


@experiment(features=(4, 8, 32), seed=range(3))
def fisher_blocks(features: Annotated[int, Field(ge=3)], seed: Seed) -> dict[str, Any]:
    """Measure the Fisher matrix of one problem with random weights and 16 samples.

    Args:
        features: outputs H; inputs are one fewer. With 2 outputs layer norm returns a sign and has
            no curvature.

    Returns:
        quarter: for each norm, curvature along w_0 after doubling w_0 ("layer_norm": all of W)
            over that before.
        own_share: size of layer norm's diagonal blocks with `own_only`, over their true size;
            mean over the blocks.
        cross_share: size of layer norm's blocks off the diagonal over the diagonal ones; means.
        batch_cross: largest block off the diagonal for batch norm.
    """
    problem = make_problem(seed=seed, samples=16, size=features - 1)
    weight, x = problem.weight, problem.x
    row = weight.clone()
    row[0] *= 2
    true = _block_norms(fisher_matrix("layer_norm", weight, x))
    own = _block_norms(fisher_matrix("layer_norm", weight, x, own_only=True))
    batch = _block_norms(fisher_matrix("batch_norm", weight, x))
    off = ~torch.eye(features, dtype=torch.bool)
    return {
        "quarter": {
            "batch_norm": _curvature_ratio("batch_norm", weight, row, x),
            "weight_norm": _curvature_ratio("weight_norm", weight, row, x),
            "layer_norm": _curvature_ratio("layer_norm", weight, 2 * weight, x),
        },
        "own_share": float((own.diagonal() / true.diagonal()).mean()),
        "cross_share": float(true[off].mean() / true.diagonal().mean()),
        "batch_cross": float(batch[off].max()),
    }
