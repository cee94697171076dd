"""A small language model with the blocks of Llama: does it learn as well with either norm?"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.experiments.data.sequences import SequenceBatches, Text, load_text, text_batches
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.sequence_training import norm_inputs
from normlab.experiments.settings import Count, Index, Positive, Several, check_divides
from normlab.norms import NORMS
from normlab.plain import PreRMSNormBlock

Norm = Literal["layer_norm", "rms_norm"]


class LanguageModel(nn.Module):
    """Embeddings, blocks with RMSNorm in front of each sublayer, a last norm, an output layer.

    Shape:
        (N, T) tokens to (N, T, vocabulary) logits.
    """

    def __init__(
        self, vocabulary: int, length: int, width: int, heads: int, hidden: int, layers: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks: Any = nn.ModuleList(
            PreRMSNormBlock(width, heads, hidden) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]  # (N, T, D)
        for block in self.blocks:
            x = block(x)  # (N, T, D)
        logits: Tensor = self.head(self.norm(x))  # (N, T, vocabulary)
        return logits


def loss_of(model: nn.Module, tokens: Tensor, following: Tensor) -> Tensor:
    """Mean cross-entropy of the next token, in nats."""
    return cross_entropy(model(tokens).flatten(0, 1), following.flatten())


def train(model: nn.Module, batches: SequenceBatches, *, lr: float, steps: int) -> list[float]:
    """Minimize the loss by Adam at a constant rate; the loss before each update."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    losses = []
    for _ in range(steps):
        tokens, following = next(batches)  # (N, T) each
        loss = loss_of(model, tokens, following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def replace_norms(model: LanguageModel, kind: Norm) -> LanguageModel:
    """Return a copy in which every norm is of one kind, with the weight and eps it had.

    Args:
        kind: "layer_norm", without a bias, or "rms_norm".
    """
    make: Any = partial(nn.LayerNorm, bias=False) if NORMS[kind].centered else nn.RMSNorm
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, old in module.named_children():
            if isinstance(old, nn.LayerNorm | nn.RMSNorm):
                new = make(old.normalized_shape, old.eps)
                new.weight = old.weight
                setattr(module, name, new)
    return model


@torch.no_grad()
def center_stream_(model: LanguageModel) -> None:
    """Subtract from all that is added to the residual stream its mean over the features."""
    for table in (model.tokens, model.positions):  # (tokens, D), (places, D)
        table.weight -= table.weight.mean(1, keepdim=True)
    for block in model.blocks:
        for last in (block.output, block.down):  # (D, D), (D, hidden): a row for each feature
            last.weight -= last.weight.mean(0, keepdim=True)


def mean_shares(model: nn.Module, tokens: Tensor) -> list[float]:
    r"""How much of the input of each norm is its mean, which RMSNorm leaves in.

    .. math:: \frac{E[\mu^2]}{E[\frac1D \sum_i x_i^2]}

    Returns:
        one share for each norm, in the order of the calls. A random vector of D independent
        features of mean 0 has the share 1/D.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm)]
    seen = [x.double() for x in norm_inputs(model, norms, tokens)]
    return [(x.mean(-1).square().mean() / x.square().mean()).item() for x in seen]


@dataclass(frozen=True)
class Config:
    """A causal model of single characters, on the help topics that come with Python.

    Both norms start from the same weights, read the same batches and have the same `eps`.
    """

    #: "layer_norm", without a bias, or "rms_norm"
    norms: tuple[Norm, ...] = ("layer_norm", "rms_norm")
    #: learning rates of Adam, from the first step on
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: each gives weights and windows
    layers: Count = 4  #: blocks
    width: Count = 32  #: D
    heads: Count = 4  #: of each attention
    hidden: Count = 88  #: units of a feed-forward network
    length: Count = 32  #: T
    batch_size: Count = 32  #: N
    steps: Count = 300  #: updates
    characters: Several = 200_000  #: of the text, from its start; the last fifth is held out

    def __post_init__(self) -> None:
        check_divides(self, "heads", "width")


def split_text(config: Config) -> tuple[Text, Text]:
    """The first four fifths of the text, to train on, and the last, to evaluate on."""
    text = load_text(config.characters)
    at = 4 * len(text.tokens) // 5
    return text._replace(tokens=text.tokens[:at]), text._replace(tokens=text.tokens[at:])


def make_model(config: Config, norm: Norm, seed: int) -> LanguageModel:
    """The network at its initial weights, which are the same for either norm."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LanguageModel(
            load_text(config.characters).vocabulary,
            config.length,
            config.width,
            config.heads,
            config.hidden,
            config.layers,
        )
    return replace_norms(model, norm)


def make_batches(config: Config, text: Text, seed: int) -> SequenceBatches:
    """Windows of a text; other draws than those of the weights."""
    return text_batches(text, length=config.length, batch_size=config.batch_size, seed=1000 + seed)


@torch.no_grad()
def held_out_loss(model: nn.Module, config: Config) -> float:
    """Mean loss over 512 windows of the text that no model was trained on."""
    _, held_out = split_text(config)
    windows = text_batches(held_out, length=config.length, batch_size=512, seed=0)
    return loss_of(model, *next(windows)).item()


def run_one(config: Config, norm: Norm, lr: float, seed: int) -> dict[str, Any]:
    """Train one model.

    Measures:
        held_out: loss on the last fifth of the text after training, in nats for a character.
        curve: mean training loss of each twenty steps; every batch is new.
        shares_before: mean² / mean of squares of the input of each norm, from the first block
            to the last norm, averaged over tokens, before training.
        shares_after: the same after training.
    """
    text, held_out = split_text(config)
    model = make_model(config, norm, seed)
    tokens, _ = next(make_batches(config, held_out, seed))
    before = mean_shares(model, tokens)
    losses = train(model, make_batches(config, text, seed), lr=lr, steps=config.steps)
    curve = [sum(part) / 20 for part in zip(*[iter(losses)] * 20, strict=True)]
    return {
        "held_out": held_out_loss(model, config),
        "curve": tuple(curve),
        "shares_before": tuple(before),
        "shares_after": tuple(mean_shares(model, tokens)),
    }


run = Sweep(run_one, norm="norms", lr="lrs", seed="seeds")
