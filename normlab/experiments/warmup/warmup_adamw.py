"""Does a Pre-LN language model need warmup, trained as such models are: AdamW, clipping, cosine?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab import schedules
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import Transformer
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.warmup.loop import train
from normlab.experiments.warmup.warmup_need import Config as Need


@dataclass(frozen=True)
class Config:
    """Pre-LN Transformers that predict the next character of Python's help texts."""

    #: updates of the linear warmup, before half a cosine down to a tenth of the peak
    lengths: tuple[Index, ...] = (0, 20, 60)
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2)  #: peaks, of AdamW
    #: each gives weights and batches, the same for every other setting
    seeds: tuple[Index, ...] = (0, 1, 2)
    layers: Count = 6  #: L
    steps: Count = 200  #: updates

    @property
    def task(self) -> Need:
        """Text, network and batches."""
        return Need(task="text", length=32, batch_size=16, layers=self.layers)


def make_adamw(model: Transformer, *, lr: float) -> torch.optim.AdamW:
    """AdamW with the settings of large language models.

    Source:
        touvron2023llama, Section 2.3.
    """
    return torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1)


def run_one(config: Config, length: int, lr: float, seed: int) -> dict[str, float]:
    """Train one network.

    Measures:
        final_loss: mean of the last 20 updates, in nats a character.
        largest_loss: after the first update.
    """
    model = config.task.make_model("pre_norm", seed)
    optimizer = make_adamw(model, lr=lr)
    schedule = schedules.cosine_decay(
        optimizer, warmup_steps=length, total_steps=config.steps, final_factor=0.1
    )
    losses = train(model, config.task.make_batches(seed), optimizer, schedule, steps=config.steps)
    last = losses[-20:]
    return {
        "final_loss": round(sum(last) / len(last), 4),
        "largest_loss": round(max(losses[1:], default=losses[0]), 4),
    }


run = Sweep(run_one, length="lengths", lr="lrs", seed="seeds")
