"""A GPT of a few thousand weights learns to count in words, with and without a norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.experiments.data.numerals import ALPHABET, counting_text, decode, encode
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Count, Index, Positive
from normlab.plain import PreNormBlock

BlockNorm = Literal["layer_norm", "rms_norm", "none"]
NORMS: dict[str, type[nn.Module]] = {
    "layer_norm": nn.LayerNorm,
    "rms_norm": nn.RMSNorm,
    "none": nn.Identity,
}


class TinyGPT(nn.Module):
    """Embedded characters and places, Pre-LN blocks, a last norm, and a score for each character.

    Args:
        layers: blocks.
        width: C, features of a token.
        length: longest text, T.
        norm: module class that is called with the width.

    Shape:
        tokens (B, T) to scores (B, T, V) for the next character.

    Source:
        the order of the layers: xiong2020layer, Table 1.
    """

    def __init__(
        self, layers: int, width: int, length: int, norm: type[nn.Module] = nn.LayerNorm
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


def train(
    model: TinyGPT, text: Tensor, *, steps: int, lr: float, batch_size: int, seed: int
) -> list[float]:
    """Train in place on random pieces of the text; gives the loss before each update."""
    length = len(model.places.weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(text) - length, (batch_size, 1), generator=generator)
        piece = text[starts + torch.arange(length + 1)]  # (B, T + 1)
        scores = model(piece[:, :-1])  # (B, T, V)
        loss = cross_entropy(scores.flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def write_on(model: TinyGPT, tokens: Tensor, count: int) -> Tensor:
    """Append the most likely character to the tokens (T,), `count` times."""
    length = len(model.places.weight)
    for _ in range(count):
        best = model(tokens[None, -length:])[0, -1].argmax()
        tokens = torch.cat([tokens, best[None]])
    return tokens


@dataclass(frozen=True)
class Config:
    """A GPT reads the numbers from one to nine hundred ninety-nine in words."""

    norms: tuple[BlockNorm, ...] = ("layer_norm", "none")  #: in every block and before the scores
    layers: tuple[Count, ...] = (4, 12)  #: blocks
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2)  #: of AdamW
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of the initial weights and the pieces of text
    width: Count = 48  #: C
    length: Count = 64  #: T
    batch_size: Count = 8  #: B
    steps: Count = 200  #: updates
    prompt: str = "seven hundred ninety-eight, "  #: what each trained network goes on from


def make_model(norm: BlockNorm, layers: int, *, width: int, length: int, seed: int) -> TinyGPT:
    """Build the network; one seed gives every norm the same initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyGPT(layers, width, length, NORMS[norm])


def run_one(config: Config, norm: BlockNorm, layers: int, lr: float, seed: int) -> dict[str, Any]:
    """Train one network.

    Measures:
        loss: mean over the last 20 updates, in nats a character; guessing all characters
            alike has log V, and a larger loss, or one that is not finite, counts as that.
        written: the 60 characters that the network finds likeliest after the prompt.
    """
    model = make_model(norm, layers, width=config.width, length=config.length, seed=seed)
    losses = train(
        model, counting_text(), steps=config.steps, lr=lr, batch_size=config.batch_size, seed=seed
    )
    last = sum(losses[-20:]) / len(losses[-20:])
    guessing = math.log(len(ALPHABET))
    written = decode(write_on(model, encode(config.prompt), 60)[len(config.prompt) :])
    return {"loss": rounded(last if last < guessing else guessing), "written": written}


run = Sweep(run_one, layers="layers", norm="norms", lr="lrs", seed="seeds")
