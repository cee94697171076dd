"""Turns a Pre-LN Transformer into a Pre-RMSNorm Transformer that computes the same function."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from normlab.book.experiments.networks.transformer import Attention, FeedForward, Transformer
from normlab.layers import LayerNorm, RMSNorm
from normlab.residual import PreNorm


class Centered(nn.Module):
    """Subtracts the mean along one axis; as a parametrization it keeps a parameter centered."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Subtract the mean."""
        return input - input.mean(self.dim, keepdim=True)


class Shift(nn.Module):
    """Adds a learned bias, which RMSNorm lacks and LayerNorm has."""

    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.bias = nn.Parameter(bias.detach().clone())

    def forward(self, input: Tensor) -> Tensor:
        """Add the bias."""
        return input + self.bias


def pre_norm_blocks(model: Transformer) -> list[PreNorm]:
    """The blocks of a Pre-LN or Pre-RMSNorm network."""
    blocks = [block for block in model.blocks if isinstance(block, PreNorm)]
    if len(blocks) < len(model.blocks):
        raise ValueError(
            "model: has a block that is not PreNorm, which reads the residual stream without a "
            "norm; build it with make_transformer('pre_norm', ...)"
        )
    return blocks


def stream_writers(model: Transformer) -> list[tuple[nn.Module, str, int]]:
    """Everything that is added to the residual stream: module, parameter, feature axis."""
    if not isinstance(model.input_norm, nn.Identity):
        raise ValueError("model: normalizes the embedding; expected a plain Pre-LN network")
    writers: list[tuple[nn.Module, str, int]] = [
        (model.tokens, "weight", 1),
        (model.positions, "weight", 1),
    ]
    for block in pre_norm_blocks(model):
        sublayer = block.sublayer
        if isinstance(sublayer, Attention):
            last: nn.Module = sublayer.out_proj
        elif isinstance(sublayer, FeedForward):
            last = sublayer[-1]
        else:
            raise ValueError(
                f"model: has a {type(sublayer).__name__} in a block; "
                "expected Attention or FeedForward"
            )
        writers += [(last, "weight", 0), (last, "bias", 0)]
    return writers


@torch.no_grad()
def center_writers_(model: Transformer) -> None:
    """Subtract from each parameter that writes to the stream its mean over the features.

    Afterwards every vector in the stream has mean zero. A Pre-LN network computes the same
    function before and after, because each of its norms subtracts that mean anyway.

    Source:
        jiang2023prermsnorm, Section 3.
    """
    for module, name, dim in stream_writers(model):
        parameter = getattr(module, name)
        parameter.sub_(parameter.mean(dim, keepdim=True))


def _replace(norm: nn.Module) -> nn.Module:
    if not isinstance(norm, LayerNorm):
        raise ValueError(
            f"model: has a {type(norm).__name__} where a LayerNorm was expected; "
            "only a Pre-LN network is converted"
        )
    rms = RMSNorm(norm.normalized_shape, norm.eps, norm.weight is not None)
    if norm.weight is None:
        return rms
    rms.to(norm.weight.dtype).load_state_dict({"weight": norm.weight})
    return rms if norm.bias is None else nn.Sequential(rms, Shift(norm.bias))


def replace_norms(model: Transformer) -> Transformer:
    """Return a copy with RMSNorm in place of LayerNorm and all else as it was.

    Returns:
        a network of which each RMSNorm has the weight and `eps` of a LayerNorm, followed by its
        bias. It computes another function unless the stream has mean zero.
    """
    replaced = copy.deepcopy(model)
    for block in pre_norm_blocks(replaced):
        block.norm = _replace(block.norm)
    replaced.norm = _replace(replaced.norm)
    return replaced


def to_pre_rms_norm(model: Transformer, *, keep_centering: bool = False) -> Transformer:
    """Return a network with RMSNorm in place of LayerNorm that computes the same function.

    Args:
        keep_centering: subtract the means again at each use of a parameter, not once. Then the
            parameters are those of `model`, receive the same gradients, and train alike.

    Source:
        jiang2023prermsnorm, Section 3.
    """
    converted = replace_norms(model)
    if not keep_centering:
        center_writers_(converted)
        return converted
    for module, name, dim in stream_writers(converted):
        parametrize.register_parametrization(module, name, Centered(dim))
    return converted
