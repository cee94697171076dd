"""Does a Pre-LN network train like the Pre-RMSNorm network that it was converted into?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from normlab.experiments.data.sequences import sequence_batches
from normlab.experiments.former_sweep import Sweep, grid
from normlab.experiments.networks.transformer import Transformer, make_transformer
from normlab.experiments.rms_norm.pre_rms_conversion import center_writers_, to_pre_rms_norm
from normlab.experiments.sequence_training import OptimizerName, make_optimizer, train_on_sequences
from normlab.experiments.settings import Count, Index, Positive, check_one_for_each

Centering = Literal["centering kept", "centered after each step", "centered once"]


@dataclass(frozen=True)
class Config:
    """A small Pre-LN network in float64 and its conversions, on the same batches."""

    #: how the converted network is kept centered while it trains
    centerings: tuple[Centering, ...] = get_args(Centering)
    #: "adam" (betas 0.9 and 0.98) or "sgd" (momentum 0.9)
    optimizers: tuple[OptimizerName, ...] = ("sgd", "adam")
    lrs: tuple[Positive, ...] = (0.05, 2e-3)  #: learning rate of each optimizer
    layers: Count = 2  #: L
    width: Count = 32  #: D
    steps: Count = 40  #: updates
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and batches

    def __post_init__(self) -> None:
        check_one_for_each(self, "lrs", of="optimizers")


def _points(config: Config) -> Iterator[dict[str, Any]]:
    for optimizer, lr in zip(config.optimizers, config.lrs, strict=True):
        yield from grid(optimizer=[optimizer], lr=[lr], seed=config.seeds)


def _make_model(config: Config, seed: int) -> Transformer:
    """Norm weights and biases are away from 1 and 0, where mistakes in a conversion would hide."""
    model = make_transformer("pre_norm", layers=config.layers, seed=seed, width=config.width)
    model = model.double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                parameter.add_(0.2 * noise)
    return model


def run_one(config: Config, optimizer: OptimizerName, lr: float, seed: int) -> list[dict[str, Any]]:
    """Train every conversion beside the network that it came from.

    Measures:
        centering: how the conversion was kept centered.
        before: largest difference of the logits before training.
        losses: largest difference of the two losses at any step.
        drop: how far the loss of the Pre-LN network fell.
    """

    def fit(model: Transformer, centering: Centering | None = None) -> tuple[float, ...]:
        centered = centering == "centered after each step"
        return train_on_sequences(
            model,
            sequence_batches("reversal", seed=1000 + seed),
            steps=config.steps,
            optimizer=make_optimizer(model, lr=lr, optimizer=optimizer),
            after_step=(lambda step: center_writers_(model)) if centered else None,
        ).losses

    model = _make_model(config, seed)
    tokens, _ = next(sequence_batches("reversal", seed=seed))
    logits = model(tokens).detach()
    conversions = {
        c: to_pre_rms_norm(model, keep_centering=c == "centering kept") for c in config.centerings
    }
    base = fit(model)
    found = []
    for centering, other in conversions.items():
        before = (other(tokens).detach() - logits).abs().max().item()
        losses = fit(other, centering)
        difference = max(abs(a - b) for a, b in zip(base, losses, strict=True))
        measured = {"before": before, "losses": difference, "drop": base[0] - base[-1]}
        found.append({"centering": centering, **measured})
    return found


run = Sweep(run_one, _points)
