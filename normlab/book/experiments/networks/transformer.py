"""A small Transformer whose norm, and the norm's place in each block, are chosen by name.

Batches to train it on: :mod:`normlab.book.experiments.data.sequences`; the training loop and the
measurements: :mod:`normlab.book.experiments.sequence_training`.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from normlab.book.experiments.networks.classifiers import make_feature_norm
from normlab.layers import QKNorm
from normlab.residual import DeepNorm, PostNorm, PreNorm, deep_norm_constants, deep_norm_init_

Placement = Literal["none", "post_norm", "pre_norm", "deep_norm"]
TokenNorm = Literal["layer_norm", "rms_norm"]

# of each pair of blocks the one that holds a matrix, and its place there
MATRICES = {
    "query": (0, "q_proj"),
    "key": (0, "k_proj"),
    "value": (0, "v_proj"),
    "attention_out": (0, "out_proj"),
    "feed_forward_in": (1, "0"),
    "feed_forward_out": (1, "2"),
}


class Attention(nn.Module):
    """Multi-head self-attention of (N, T, D).

    Args:
        causal: a token sees itself and those before it.
        qk_norm: of queries and keys in each head.

    Source:
        vaswani2017attention, Section 3.2.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        bias: bool = True,
        qk_norm: QKNorm | None = None,
    ) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"heads: got {heads}; expected a divisor of width {width}")
        self.heads = heads
        self.causal = causal
        self.q_proj = nn.Linear(width, width, bias)
        self.k_proj = nn.Linear(width, width, bias)
        self.v_proj = nn.Linear(width, width, bias)
        self.out_proj = nn.Linear(width, width, bias)
        self.qk_norm = qk_norm

    def forward(self, x: Tensor) -> Tensor:
        """Mix the tokens of each sequence."""
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, heads, T, D/heads)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.qk_norm is not None:
            q, k = self.qk_norm(q, k)
        mixed: Tensor = self.out_proj(self.mix(q, k, v).transpose(1, 2).flatten(2))  # (N, T, D)
        return mixed

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Weighted means of the values, (N, heads, T, D/heads) as are all three."""
        return scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class MeasuredAttention(Attention):
    """Causal attention, written out, that remembers its largest logit."""

    largest_logit = 0.0

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Weighted means of the values; measures the logits on the way."""
        logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])  # (N, heads, T, T)
        later = torch.ones_like(logits[0, 0], dtype=torch.bool).triu(1)
        seen = logits.detach().masked_fill(later, 0.0).abs().max().item()
        self.largest_logit = max(self.largest_logit, seen)
        return logits.masked_fill(later, -math.inf).softmax(-1) @ v


class FeedForward(nn.Sequential):
    """Linear → ReLU → linear on each token; the last matrix is `[-1]`.

    Source:
        vaswani2017attention, Eq. 2.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


class Transformer(nn.Module):
    """Embedding, two blocks a layer, a last norm, output layer.

    :func:`make_transformer` and
    :func:`normlab.book.experiments.networks.decoder.make_decoder` build it.

    Shape:
        (N, T) tokens to (N, T, vocabulary) logits.
    """

    def __init__(
        self,
        blocks: list[nn.Module],
        *,
        input_norm: nn.Module,
        norm: nn.Module,
        vocabulary: int,
        length: int,
        width: int,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.input_norm = input_norm
        self.blocks: Any = nn.ModuleList(blocks)
        self.norm = norm
        self.head = nn.Linear(width, vocabulary, bias)

    def draw_(self, gain: float) -> None:
        """Draw all matrices by Xavier's normal rule, those of the blocks with a gain; no biases.

        Drawn once more after all is built, so that a gain changes the scale of a matrix and
        nothing else.
        """
        deep_norm_init_(self.blocks, gain)
        deep_norm_init_(self.head, 1.0)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def hidden_states(self, tokens: Tensor) -> list[Tensor]:
        """What leaves the embedding and each layer: L + 1 tensors (N, T, D)."""
        places = self.positions.weight[: tokens.shape[1]]  # (T, D)
        x: Tensor = self.input_norm(self.tokens(tokens) + places)
        states = [x]
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i % 2:
                states.append(x)
        return states

    def features(self, tokens: Tensor) -> Tensor:
        """What the output layer reads: the last hidden state, after the last norm."""
        return self.norm(self.hidden_states(tokens)[-1])

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits at every position."""
        return self.head(self.features(tokens))

    def matrices(self, name: str = "feed_forward_out") -> list[nn.Parameter]:
        """One weight matrix from each layer, first layer first."""
        if name not in MATRICES:
            raise ValueError(f"name: got {name!r}; expected one of {', '.join(MATRICES)}")
        first, path = MATRICES[name]
        sublayers: list[Any] = [block.sublayer for block in self.blocks[first::2]]
        return [sublayer.get_submodule(path).weight for sublayer in sublayers]


def make_transformer(
    placement: Placement,
    *,
    layers: int,
    seed: int,
    norm: TokenNorm = "layer_norm",
    vocabulary: int = 10,
    length: int = 12,
    width: int = 32,
    heads: int = 4,
    expansion: int = 4,
    causal: bool = False,
    alpha: float | None = None,
    beta: float | None = None,
) -> Transformer:
    """Build the network; one seed gives every placement the same draws.

    Matrices start by Xavier's normal rule, biases at 0, token and position embeddings with
    unit variance. Post-norm and DeepNorm also normalize the input of the first block, pre-norm
    the output of the last.

    Args:
        placement: of the norm; "none" leaves x + F(x).
        layers: L; a layer is an attention and a feed-forward block.
        expansion: hidden units of a feed-forward network, in multiples of `width`.
        causal: a token sees itself and those before it (a decoder without cross-attention).
        alpha: factor of the skips, "deep_norm" only; None takes :func:`deep_norm_constants`.
        beta: gain of the feed-forward, value and output matrices; None takes
            :func:`deep_norm_constants` for "deep_norm" and 1 for the others.

    Source:
        vaswani2017attention; xiong2020layer, Table 1; wang2022deepnet, Figure 2.
    """
    if placement not in get_args(Placement):
        raise ValueError(
            f"placement: got {placement!r}; expected one of {', '.join(get_args(Placement))}"
        )
    if norm not in get_args(TokenNorm):
        raise ValueError(f"norm: got {norm!r}; expected 'layer_norm' or 'rms_norm'")
    sizes = {"layers": layers, "vocabulary": vocabulary, "length": length, "width": width}
    for name, value in (sizes | {"expansion": expansion}).items():
        if value < 1:
            raise ValueError(f"{name}: got {value}; expected 1 or more")
    if alpha is not None and placement != "deep_norm":
        raise ValueError(f"alpha: only 'deep_norm' has one, not {placement!r}; leave it out")
    # both kinds of single stack have the same constants
    constants = deep_norm_constants(encoder_layers=layers)
    skip = constants.encoder_alpha if alpha is None else alpha
    gain = (constants.encoder_beta if placement == "deep_norm" else 1.0) if beta is None else beta
    assert skip is not None and gain is not None

    def norm_if(wanted: bool) -> nn.Module:
        return make_feature_norm(norm if wanted else "none", width)

    def wrap(sublayer: nn.Module) -> nn.Module:
        own = norm_if(placement != "none")
        if placement == "post_norm":
            return PostNorm(sublayer, own)
        if placement == "deep_norm":
            return DeepNorm(sublayer, own, alpha=skip)
        return PreNorm(sublayer, own)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        blocks: list[nn.Module] = []
        for _ in range(layers):
            blocks.append(wrap(Attention(width, heads, causal=causal)))
            blocks.append(wrap(FeedForward(width, expansion * width)))
        model = Transformer(
            blocks,
            input_norm=norm_if(placement in ("post_norm", "deep_norm")),
            norm=norm_if(placement == "pre_norm"),
            vocabulary=vocabulary,
            length=length,
            width=width,
        )
        model.draw_(gain)
    return model
