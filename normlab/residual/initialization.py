"""The second half of DeepNorm: which matrices start smaller."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

Block = TypeVar("Block", bound=nn.Module)

_QUERY_OR_KEY = {"q", "k", "query", "key"}
_PACKED = {"qkv", "in_proj", "c_attn", "query_key_value"}


def _plain_name(name: str) -> str:
    """Last part of a module's name without the usual decorations: wq, to_q, q_proj become q."""
    last = name.rsplit(".", 1)[-1].lower()
    if last in _PACKED:
        return last
    for affix in ("_proj", "_projection", "_linear", "_layer", "proj"):
        last = last.removesuffix(affix)
    for affix in ("to_", "w_", "w"):
        last = last.removeprefix(affix)
    return last


def _init_packed(weight: Tensor, beta: float, name: str) -> None:
    if weight.shape[0] % 3:
        raise ValueError(
            f"block: {name} looks like query, key and value in one matrix, but its "
            f"{weight.shape[0]} rows do not divide by 3; use separate projections"
        )
    # each third is a matrix of its own, with its own fan-out
    for part, gain in zip(weight.chunk(3), (1.0, 1.0, beta), strict=True):
        nn.init.xavier_normal_(part, gain=gain)


@torch.no_grad()
def deep_norm_init_(block: Block, beta: float) -> Block:
    r"""Initialize the matrices of a block by Xavier's rule, some of them scaled by beta.

    .. math:: W \sim N\!\left(0, \frac{2 g^2}{d_{in} + d_{out}}\right), \qquad
              g = \beta \text{ for feed-forward, value and output matrices, } 1
              \text{ for query and key}

    Linear layers are told apart by name: `q`, `k`, `query`, `key` with the usual decorations
    (`q_proj`, `to_k`, `wq`) keep gain 1; `qkv`, `in_proj`, `c_attn` are split in three; every
    other linear layer gets beta. :class:`torch.nn.MultiheadAttention` is understood. Biases,
    embeddings and norms are left as they are.

    Args:
        block: a sublayer, a block or a whole stack; changed in place.
        beta: gain, from :func:`deep_norm_constants`.

    Returns:
        `block`.

    Raises:
        ValueError: `beta` is not a positive number, or `block` holds no matrix to initialize.

    Source:
        wang2022deepnet, Figure 2; the rule itself is glorot2010understanding, Eq. 12.
    """
    if not (math.isfinite(beta) and beta > 0):
        raise ValueError(
            f"beta: got {beta}; expected a positive number. "
            "deep_norm_constants(encoder_layers=...) gives it"
        )
    found = False
    for name, module in block.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            found = True
            if module.in_proj_weight is not None:
                _init_packed(module.in_proj_weight, beta, f"{name}.in_proj_weight")
            else:
                nn.init.xavier_normal_(module.q_proj_weight)
                nn.init.xavier_normal_(module.k_proj_weight)
                nn.init.xavier_normal_(module.v_proj_weight, gain=beta)
        elif isinstance(module, nn.Linear):
            found = True
            plain = _plain_name(name)
            if plain in _PACKED:
                _init_packed(module.weight, beta, name)
            else:
                nn.init.xavier_normal_(module.weight, gain=1.0 if plain in _QUERY_OR_KEY else beta)
    if not found:
        raise ValueError(
            "block: holds no nn.Linear and no nn.MultiheadAttention; expected a sublayer, a "
            "block or a stack with matrices to initialize"
        )
    return block
