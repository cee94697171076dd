"""Does a Pre-LN language model need warmup, trained as such models are: AdamW, clipping, cosine?"""

from __future__ import annotations

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from normlab import schedules
from normlab.book.experiments.networks.transformer import Transformer
from normlab.book.experiments.sequence_training import text_network
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit, token_loss


def make_adamw(model: Transformer, *, lr: float) -> torch.optim.AdamW:
    """AdamW with the settings of large language models.

    Source:
        touvron2023llama, Section 2.3.
    """
    return torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1)


@experiment(length=(0, 20, 60), lr=(1e-3, 3e-3, 1e-2, 3e-2), seed=range(3))
def warmup_adamw(
    length: NonNegativeInt,
    lr: PositiveFloat,
    seed: Seed,
    *,
    layers: PositiveInt = 6,
    steps: Steps = 200,
) -> dict[str, float]:
    """Train a Pre-LN Transformer to predict the next character of Python's help texts.

    Args:
        length: updates of the linear warmup, before half a cosine down to a tenth of the peak.
        lr: peak, of AdamW; gradients are cut to norm 1.

    Returns:
        final_loss: mean of the last 20 updates, in nats a character.
    """
    model, batches = text_network("pre_norm", layers=layers, seed=seed)
    optimizer = make_adamw(model, lr=lr)
    schedule = schedules.cosine_decay(
        optimizer, warmup_steps=length, total_steps=steps, final_factor=0.1
    )
    losses = fit(
        model,
        optimizer,
        batches,
        steps,
        loss_of=token_loss,
        max_grad_norm=1.0,
        scheduler=schedule,
    )
    last = losses[-20:]
    return {"final_loss": round(sum(last) / len(last), 4)}
