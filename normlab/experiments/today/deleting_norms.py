"""What does a trained decoder lose if its norms become constant factors, one after another?"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from normlab.experiments.data.sequences import SequenceBatches, Text, load_text, text_batches
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.decoder import Decoder, make_decoder
from normlab.experiments.recording import rounded
from normlab.experiments.sequence_training import norm_inputs, token_loss
from normlab.experiments.settings import Count, Index, Positive, Several, check_divides
from normlab.experiments.training import minimize
from normlab.layers import RMSNorm

Batches = list[tuple[Tensor, Tensor]]


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


@dataclass(frozen=True)
class Config:
    """Pre-norm decoders learn to continue a text by characters; then their norms are frozen."""

    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and texts
    #: updates after each deletion, where one norm is deleted after another
    tunings: tuple[Index, ...] = (0, 20)
    lr: Positive = 3e-3  #: of Adam in training
    tuning_lr: Positive = 1e-3  #: of Adam after a deletion
    layers: Count = 3  #: of the decoder; each has two norms, and one stands behind the last
    width: Count = 64  #: D
    heads: Count = 4  #: of each attention
    characters: Several = 200_000  #: of the text; the last tenth is held out
    length: Several = 64  #: T, of a window
    batch_size: Count = 16  #: N
    steps: Count = 600  #: updates of training
    measured: Count = 24  #: batches behind each divisor, and held-out batches behind each loss

    def __post_init__(self) -> None:
        check_divides(self, "heads", "width")


def find_sites(model: nn.Module) -> tuple[str, ...]:
    """Names of the RMS norms of a network, from the first to the last."""
    return tuple(name for name, m in model.named_modules() if isinstance(m, RMSNorm))


@torch.no_grad()
def measure_divisor(model: Decoder, site: str, batches: Batches) -> float:
    """Mean over all tokens of the root mean square that a norm divides by."""
    norm = model.get_submodule(site)
    seen = [norm_inputs(model, [norm], tokens)[0] for tokens, _ in batches]
    sizes = [x.square().mean(-1).sqrt() for x in seen]
    return torch.cat(sizes).mean().item()


def freeze_norm_(model: Decoder, site: str, batches: Batches) -> None:
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
    minimize(lambda batch: token_loss(model, batch), batches, optimizer, steps=steps)


def split_text(characters: int) -> tuple[Text, Text]:
    """The first nine tenths of a text, to learn from, and the last tenth."""
    text = load_text(characters)
    cut = characters * 9 // 10
    return text._replace(tokens=text.tokens[:cut]), text._replace(tokens=text.tokens[cut:])


def run_one(config: Config, seed: int) -> dict[str, Any]:
    """Train one decoder and delete its norms.

    Measures:
        sites: names of the norms, from the first to the last.
        intact: held-out loss before any deletion, in nats for a character.
        alone: loss after each norm alone was frozen.
        together: for each entry of `tunings`, the losses after the first, the first two, ... up to
            all norms were frozen.
        kept: for each entry, the losses of the network with its norms after as many updates.
    """
    text, rest = split_text(config.characters)
    sizes = {"length": config.length, "batch_size": config.batch_size}
    seen, held_out = (
        list(islice(text_batches(part, seed=0, **sizes), config.measured)) for part in (text, rest)
    )
    model = make_decoder(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        vocabulary=text.vocabulary,
        length=config.length,
        seed=seed,
    )
    batches = text_batches(text, seed=1000 + seed, **sizes)
    train_(model, batches, lr=config.lr, steps=config.steps)
    sites = find_sites(model)
    alone = []
    for site in sites:
        damaged = copy.deepcopy(model)
        freeze_norm_(damaged, site, seen)
        alone.append(measure_loss(damaged, held_out))
    together, kept = [], []
    for updates in config.tunings:
        damaged, whole = copy.deepcopy(model), copy.deepcopy(model)
        losses: tuple[list[float], list[float]] = ([], [])
        streams = [text_batches(text, seed=2000 + seed, **sizes) for _ in losses]
        for site in sites:
            freeze_norm_(damaged, site, seen)
            for network, stream, found in zip((damaged, whole), streams, losses, strict=True):
                train_(network, stream, lr=config.tuning_lr, steps=updates)
                found.append(measure_loss(network, held_out))
        together.append(tuple(losses[0]))
        kept.append(tuple(losses[1]))
    return {
        "sites": sites,
        "intact": measure_loss(model, held_out),
        "alone": tuple(alone),
        "together": tuple(together),
        "kept": tuple(kept),
    }


run = Sweep(run_one, seed="seeds")
