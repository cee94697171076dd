"""A GPT of a few thousand weights learns to count in words, with and without a norm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from normlab import layers as norms
from normlab.book.experiments.data.numerals import ALPHABET, counting_text, decode, encode
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import check_warmup, fit, token_loss
from normlab.plain import PreNormBlock
from normlab.schedules import constant

LENGTH = 64  # T, of a piece of the text
PROMPT = "seven hundred ninety-eight, "  # what each trained network goes on from
BlockNorm = Literal["layer_norm", "rms_norm", "none"]
NORMS: dict[str, type[nn.Module]] = {
    "layer_norm": norms.LayerNorm,
    "rms_norm": norms.RMSNorm,
    "none": nn.Identity,
}


class TinyGPT(nn.Module):
    """Embedded characters and places, Pre-LN blocks, a last norm, and a score for each character.

    Shape:
        tokens (B, T) to scores (B, T, V) for the next character.

    Source:
        the order of the layers: xiong2020layer, Table 1.
    """

    def __init__(
        self, layers: int, width: int, length: int, norm: type[nn.Module] = norms.LayerNorm
    ) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(ALPHABET), width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.Sequential(
            *[PreNormBlock(width, 4, 4 * width, norm) for _ in range(layers)]
        )
        self.norm = norm(width)
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, tokens: Tensor) -> Tensor:
        """Score the next character at every place."""
        x = self.characters(tokens) + self.places.weight[: tokens.shape[1]]  # (B, T, C)
        scores: Tensor = self.head(self.norm(self.blocks(x)))
        return scores


def draw_pieces(text: Tensor, length: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield eight random pieces of a text, and the same a character later, (8, T) each."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(text) - length, (8, 1), generator=generator)
        piece = text[starts + torch.arange(length + 1)]  # (8, T + 1)
        yield piece[:, :-1], piece[:, 1:]


@torch.no_grad()
def write_on(model: TinyGPT, tokens: Tensor, count: int) -> Tensor:
    """Append the most likely character to the tokens (T,), `count` times."""
    length = len(model.places.weight)
    for _ in range(count):
        best = model(tokens[None, -length:])[0, -1].argmax()
        tokens = torch.cat([tokens, best[None]])
    return tokens


def make_model(norm: BlockNorm, layers: int, *, width: int, length: int, seed: int) -> TinyGPT:
    """Build the network; one seed gives every norm the same initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyGPT(layers, width, length, NORMS[norm])


@torch.no_grad()
def stream_sizes(model: TinyGPT, tokens: Tensor) -> list[float]:
    """Root mean square of the residual stream, in front of the first block and behind each."""
    x = model.characters(tokens) + model.places.weight[: tokens.shape[1]]
    stream = [x]
    for block in model.blocks:
        stream.append(block(stream[-1]))
    return [x.square().mean().sqrt().item() for x in stream]


@experiment(
    norm=("layer_norm", "none"),
    layers=(4, 12),
    lr=(1e-3, 3e-3, 1e-2, 3e-2),
    seed=range(3),
    condition=check_warmup,
)
def tiny_gpt(
    norm: BlockNorm,
    layers: PositiveInt,
    lr: PositiveFloat,
    seed: Seed,
    *,
    width: PositiveInt = 48,
    steps: Steps = 200,
    warmup: NonNegativeInt = 0,
) -> dict[str, Any]:
    """Train a GPT on the numbers from one to nine hundred ninety-nine in words.

    Args:
        norm: in every block and before the scores; "none" leaves it out.
        warmup: updates over which the rate climbs linearly; 0 starts at the full rate.

    Returns:
        loss: mean over the last 20 updates, in nats a character; guessing all characters
            alike has log V, and a larger loss, or one that is not finite, counts as that.
        written: the 60 characters that the network finds likeliest after the prompt.
    """
    model = make_model(norm, layers, width=width, length=LENGTH, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    pieces = draw_pieces(counting_text(), LENGTH, seed)
    rates = constant(optimizer, warmup_steps=warmup)
    losses = fit(model, optimizer, pieces, steps, loss_of=token_loss, scheduler=rates)
    last, guessing = sum(losses[-20:]) / len(losses[-20:]), math.log(len(ALPHABET))
    written = decode(write_on(model, encode(PROMPT), 60)[len(PROMPT) :])
    return {"loss": rounded(last if last < guessing else guessing), "written": written}
