"""Does a Pre-LN network train like the Pre-RMSNorm network that it was converted into?"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch

from normlab.book.experiments.data.sequences import sequence_batches
from normlab.book.experiments.networks.transformer import Transformer, make_transformer
from normlab.book.experiments.rms_norm.pre_rms_conversion import center_writers_, to_pre_rms_norm
from normlab.book.experiments.sequence_training import make_optimizer, train_on_sequences
from normlab.book.experiments.sweep import Seed, Steps, experiment

Centering = Literal["centering kept", "centered after each step", "centered once"]


RATES = {"sgd": 0.05, "adam": 2e-3}


def _make_model(seed: int) -> Transformer:
    """Norm weights and biases are away from 1 and 0, where mistakes in a conversion would hide."""
    model = make_transformer("pre_norm", layers=2, seed=seed, width=32)
    model = model.double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                parameter.add_(0.2 * noise)
    return model


@experiment(optimizer=tuple(RATES), seed=range(5))
def pre_rms_training(
    optimizer: Literal["sgd", "adam"], seed: Seed, *, steps: Steps = 40
) -> list[dict[str, Any]]:
    """Train a small Pre-LN network in float64 and its conversions, on the same batches.

    Args:
        optimizer: "adam" (betas 0.9 and 0.98) at the rate 0.002, or "sgd" (momentum 0.9) at 0.05.

    Returns:
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
            steps=steps,
            optimizer=make_optimizer(model, lr=RATES[optimizer], optimizer=optimizer),
            after_step=(lambda step: center_writers_(model)) if centered else None,
        ).losses

    model = _make_model(seed)
    tokens, _ = next(sequence_batches("reversal", seed=seed))
    logits = model(tokens).detach()
    conversions = {
        c: to_pre_rms_norm(model, keep_centering=c == "centering kept") for c in get_args(Centering)
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
