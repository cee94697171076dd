"""A small language model with the blocks of Llama: does it learn as well with either norm?"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.data.sequences import SequenceBatches, Text, load_text, text_batches
from normlab.book.experiments.sequence_training import make_optimizer, norm_inputs
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit, token_loss
from normlab.layers import LayerNorm, RMSNorm
from normlab.norms import NORMS
from normlab.plain import PreRMSNormBlock

Norm = Literal["layer_norm", "rms_norm"]
LENGTH = 32  # T, of a window
HEADS = 4  # of each attention
CHARACTERS = 200_000  # of the text, from its start; the last fifth is held out


def _divides(width: int) -> None:
    if width % HEADS:
        raise ValueError(f"width: got {width}; expected a multiple of {HEADS}, the heads")


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
            PreRMSNormBlock(width, heads, hidden, norm=RMSNorm) for _ in range(layers)
        )
        self.norm = RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]  # (N, T, D)
        for block in self.blocks:
            x = block(x)  # (N, T, D)
        logits: Tensor = self.head(self.norm(x))  # (N, T, vocabulary)
        return logits


def replace_norms(model: LanguageModel, kind: Norm) -> LanguageModel:
    """Return a copy in which every norm is of one kind, with the weight and eps it had.

    Args:
        kind: "layer_norm", without a bias, or "rms_norm".
    """
    make: Any = partial(LayerNorm, bias=False) if NORMS[kind].centered else RMSNorm
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, old in module.named_children():
            if isinstance(old, LayerNorm | RMSNorm):
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
    norms = [m for m in model.modules() if isinstance(m, LayerNorm | RMSNorm)]
    seen = [x.double() for x in norm_inputs(model, norms, tokens)]
    return [(x.mean(-1).square().mean() / x.square().mean()).item() for x in seen]


def split_text() -> tuple[Text, Text]:
    """The first four fifths of the text, to train on, and the last, to evaluate on."""
    text = load_text(CHARACTERS)
    at = 4 * len(text.tokens) // 5
    return text._replace(tokens=text.tokens[:at]), text._replace(tokens=text.tokens[at:])


def make_model(
    norm: Norm, seed: int, *, layers: int = 4, width: int = 32, hidden: int = 88
) -> LanguageModel:
    """The network at its initial weights, which are the same for either norm."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LanguageModel(
            load_text(CHARACTERS).vocabulary, LENGTH, width, HEADS, hidden, layers
        )
    return replace_norms(model, norm)


def make_batches(text: Text, seed: int) -> SequenceBatches:
    """Batches of 32 windows of a text, from a random stream apart from that of the weights."""
    return text_batches(text, length=LENGTH, batch_size=32, seed=1000 + seed)


@torch.no_grad()
def held_out_loss(model: nn.Module) -> float:
    """Mean loss over 512 windows of the text that no model was trained on."""
    _, held_out = split_text()
    windows = text_batches(held_out, length=LENGTH, batch_size=512, seed=0)
    return token_loss(model, next(windows)).item()


@experiment(
    norm=("layer_norm", "rms_norm"),
    lr=(1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    seed=range(5),
    condition=_divides,
)
def language_model(
    norm: Norm,
    lr: PositiveFloat,
    seed: Seed,
    *,
    layers: PositiveInt = 4,
    width: PositiveInt = 32,
    hidden: PositiveInt = 88,
    steps: Steps = 300,
) -> dict[str, Any]:
    """Train a causal model of single characters on the help topics that come with Python.

    Both norms start from the same weights, read the same batches and have the same `eps`.

    Args:
        norm: "layer_norm", without a bias, or "rms_norm".

    Returns:
        held_out: loss on the last fifth of the text after training, in nats for a character.
        curve: mean training loss of each twenty steps; every batch is new.
        shares_before: mean² / mean of squares of the input of each norm, from the first block
            to the last norm, averaged over tokens, before training.
        shares_after: the same after training.
    """
    text, held_out = split_text()
    model = make_model(norm, seed, layers=layers, width=width, hidden=hidden)
    tokens, _ = next(make_batches(held_out, seed))
    before = mean_shares(model, tokens)
    batches = make_batches(text, seed)
    losses = fit(model, make_optimizer(model, lr=lr), batches, steps, loss_of=token_loss)
    curve = [sum(part) / 20 for part in zip(*[iter(losses)] * 20, strict=True)]
    return {
        "held_out": held_out_loss(model),
        "curve": curve,
        "shares_before": before,
        "shares_after": mean_shares(model, tokens),
    }
