"""What does a trained decoder lose if its norms become constant factors, one after another?"""

from __future__ import annotations

import copy
from itertools import islice
from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.data.sequences import SequenceBatches, Text, load_text, text_batches
from normlab.book.experiments.networks.decoder import make_decoder
from normlab.book.experiments.networks.transformer import Transformer
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sequence_training import norm_inputs
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import fit, token_loss
from normlab.layers import RMSNorm

Batches = list[tuple[Tensor, Tensor]]
TUNINGS = (0, 20)  # updates after each deletion, where one norm is deleted after another
LENGTH = 64  # T, of a window


class FrozenNorm(nn.Module):
    """RMS norm whose divisor is one number for all tokens: an affine map without statistics.

    Example:
        >>> frozen = FrozenNorm(nn.Parameter(torch.ones(2)), 4.0)
        >>> frozen(torch.tensor([[2.0, 8.0]])).tolist()
        [[0.5, 2.0]]
    """

    divisor: Tensor

    def __init__(self, weight: nn.Parameter, divisor: float) -> None:
        super().__init__()
        self.weight = weight
        self.register_buffer("divisor", torch.tensor(divisor))

    def forward(self, x: Tensor) -> Tensor:
        """Divide by the constant and multiply by the weight."""
        return x / self.divisor * self.weight


def find_sites(model: nn.Module) -> tuple[str, ...]:
    """Names of the RMS norms of a network, from the first to the last."""
    return tuple(name for name, m in model.named_modules() if isinstance(m, RMSNorm))


@torch.no_grad()
def measure_divisor(model: Transformer, site: str, batches: Batches) -> float:
    """Mean over all tokens of the root mean square that a norm divides by."""
    norm = model.get_submodule(site)
    seen = [norm_inputs(model, [norm], tokens)[0] for tokens, _ in batches]
    sizes = [x.square().mean(-1).sqrt() for x in seen]
    return torch.cat(sizes).mean().item()


def freeze_norm_(model: Transformer, site: str, batches: Batches) -> None:
    """Put a constant divisor, measured now, in the place of one norm."""
    weight = model.get_submodule(site).weight
    assert isinstance(weight, nn.Parameter)
    model.set_submodule(site, FrozenNorm(weight, measure_divisor(model, site, batches)))


@torch.no_grad()
def measure_loss(model: nn.Module, batches: Batches) -> float:
    """Mean loss over the batches, with four digits."""
    return rounded(sum(token_loss(model, batch).item() for batch in batches) / len(batches))


def train_(model: nn.Module, batches: SequenceBatches, *, lr: float, steps: int) -> None:
    """Train in place by Adam at a constant rate."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    fit(model, optimizer, batches, steps, loss_of=token_loss)


def split_text(characters: int) -> tuple[Text, Text]:
    """The first nine tenths of a text, to learn from, and the last tenth."""
    text = load_text(characters)
    cut = characters * 9 // 10
    return text._replace(tokens=text.tokens[:cut]), text._replace(tokens=text.tokens[cut:])


def draw_batches(text: Text, seed: int) -> SequenceBatches:
    """16 random windows at a time."""
    return text_batches(text, length=LENGTH, batch_size=16, seed=seed)


@experiment(seed=range(5))
def deleting_norms(
    seed: Seed,
    *,
    layers: PositiveInt = 3,
    steps: PositiveInt = 600,
    measured: PositiveInt = 24,
) -> dict[str, Any]:
    """Train a pre-norm decoder of width 64 to continue a text by characters; delete its norms.

    Args:
        layers: each has two norms, and one stands behind the last.
        steps: updates of training, by Adam at 0.003; after a deletion the rate is 0.001.
        measured: batches behind each divisor, and held-out batches behind each loss.

    Returns:
        sites: names of the norms, from the first to the last.
        intact: held-out loss before any deletion, in nats for a character.
        alone: loss after each norm alone was frozen.
        together: without and with 20 updates after each deletion, the losses after the first, the
            first two, ... up to all norms were frozen.
        kept: the losses of the network with its norms after as many updates.
    """
    text, rest = split_text(200_000)
    seen, held_out = (list(islice(draw_batches(part, seed=0), measured)) for part in (text, rest))
    model = make_decoder(
        layers=layers, width=64, heads=4, vocabulary=text.vocabulary, length=LENGTH, seed=seed
    )
    train_(model, draw_batches(text, seed=1000 + seed), lr=3e-3, steps=steps)
    sites = find_sites(model)
    alone = []
    for site in sites:
        damaged = copy.deepcopy(model)
        freeze_norm_(damaged, site, seen)
        alone.append(measure_loss(damaged, held_out))
    together, kept = [], []
    for updates in TUNINGS:
        damaged, whole = copy.deepcopy(model), copy.deepcopy(model)
        losses: tuple[list[float], list[float]] = ([], [])
        streams = [draw_batches(text, seed=2000 + seed) for _ in losses]
        for site in sites:
            freeze_norm_(damaged, site, seen)
            for network, stream, found in zip((damaged, whole), streams, losses, strict=True):
                train_(network, stream, lr=1e-3, steps=updates)
                found.append(measure_loss(network, held_out))
        together.append(losses[0])
        kept.append(losses[1])
    return {
        "sites": list(sites),
        "intact": measure_loss(model, held_out),
        "alone": alone,
        "together": together,
        "kept": kept,
    }
