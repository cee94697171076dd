"""Does a thousand layers of encoder and decoder survive its first updates?"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.book.experiments.data.sequences import sequence_batches
from normlab.book.experiments.networks.transformer import FeedForward
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import experiment
from normlab.residual import DeepNorm, PostNorm, PreNorm, deep_norm_constants, deep_norm_init_

Group = Literal["post_norm", "pre_norm", "deep_norm"]
LETTERS = 8  # of the alphabet, and of a sequence


class CrossAttention(nn.Module):
    """Attention of (N, T, D) to another sequence, or to itself if none is given."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.causal = causal

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """Mix the tokens of the memory."""
        memory = x if memory is None else memory
        shape = x.shape[1], memory.shape[1]
        mask = torch.ones(shape, dtype=torch.bool).triu(1) if self.causal else None
        y: Tensor = self.attention(x, memory, memory, attn_mask=mask, need_weights=False)[0]
        return y


class EncoderDecoder(nn.Module):
    """Encoder and decoder of equal depth; a layer of the decoder has three blocks.

    Shape:
        two (N, T) of tokens, or both in one (2, N, T), to (N, T, letters) logits.

    Source:
        vaswani2017attention, Figure 1; wang2022deepnet, Figure 2.
    """

    def __init__(
        self, group: Group, layers: int, *, width: int = 16, letters: int = LETTERS, seed: int
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        constants: Any = deep_norm_constants(encoder_layers=layers, decoder_layers=layers)

        def block(sublayer: nn.Module, alpha: float, beta: float) -> nn.Module:
            deep_norm_init_(sublayer, beta if group == "deep_norm" else 1.0)
            norm = nn.LayerNorm(width)
            if group == "deep_norm":
                return DeepNorm(sublayer, norm, alpha=alpha)
            return (PreNorm if group == "pre_norm" else PostNorm)(sublayer, norm)

        self.tokens = nn.Embedding(letters + 1, width)  # the last one begins a sequence
        self.positions = nn.Embedding(letters, width)
        self.encoder = nn.ModuleList(
            block(sublayer, *constants[:2])
            for _ in range(layers)
            for sublayer in (CrossAttention(width, 2), FeedForward(width, 2 * width))
        )
        self.decoder = nn.ModuleList(
            block(sublayer, *constants[2:])
            for _ in range(layers)
            for sublayer in (
                CrossAttention(width, 2, causal=True),
                CrossAttention(width, 2),
                FeedForward(width, 2 * width),
            )
        )
        # a stack of Pre-LN ends with a norm of its own
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(width) if group == "pre_norm" else nn.Identity() for _ in range(2)
        )
        self.head = nn.Linear(width, letters)

    def features(self, source: Tensor, target: Tensor) -> Tensor:
        """What the output layer reads, (N, T, D)."""
        places = self.positions.weight[: source.shape[1]]
        memory, y = self.tokens(source) + places, self.tokens(target) + places  # (N, T, D)
        for block in self.encoder:
            memory = block(memory)
        memory = self.encoder_norm(memory)
        for i, block in enumerate(self.decoder):
            y = block(y, memory) if i % 3 == 1 else block(y)
        return self.decoder_norm(y)

    def forward(self, source: Tensor, target: Tensor | None = None) -> Tensor:
        """Compute the logits."""
        if target is None:
            source, target = source
        logits: Tensor = self.head(self.features(source, target))
        return logits


@experiment(group=("post_norm", "deep_norm"), layers=(5, 50, 500), lr=(1e-5, 1e-4), seed=range(3))
def encoder_decoder(
    group: Group,
    layers: PositiveInt,
    lr: PositiveFloat,
    seed: NonNegativeInt,
    *,
    updates: PositiveInt = 5,
) -> dict[str, Any]:
    """Take the first updates by Adam and watch the output for one batch of reversal.

    Args:
        group: Post-LN, or DeepNorm with the constants of the two depths.
        layers: of the encoder, and of the decoder.
        seed: gives weights and the batch, 16 sequences of 8 letters, the same in each update.

    Returns:
        moved: norm of the change of what the output layer reads since the start, over its norm
            at the start, after each update.
        losses: before each update, in nats.
        first: largest over smallest gradient of the encoder's blocks before training, norms.
    """
    model = EncoderDecoder(group, layers, seed=seed)
    source, answer = next(
        sequence_batches(vocabulary=LETTERS, length=LETTERS, batch_size=16, seed=1000 + seed)
    )
    begin = torch.full_like(answer[:, :1], LETTERS)
    target = torch.cat([begin, answer[:, :-1]], 1)
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    with torch.no_grad():
        start = model.features(source, target)
    moved: list[float] = []
    losses: list[float] = []
    sizes: list[float] = []
    for _ in range(updates):
        loss = cross_entropy(model(source, target).flatten(0, 1), answer.flatten())
        adam.zero_grad()
        loss.backward()
        if not sizes:
            sizes = [
                sum(float(p.grad.square().sum()) for p in b.parameters() if p.grad is not None)
                for b in model.encoder
            ]
        adam.step()
        with torch.no_grad():
            now = model.features(source, target)
        losses.append(rounded(loss.item()))
        moved.append(rounded(((now - start).norm() / start.norm()).item()))
    return {
        "moved": moved,
        "losses": losses,
        "first": rounded((max(sizes) / max(min(sizes), 1e-300)) ** 0.5),
    }
