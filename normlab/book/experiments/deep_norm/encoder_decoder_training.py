"""Which placement trains an encoder-decoder of a hundred blocks, at its own best rate?"""

from __future__ import annotations

from typing import Any, get_args

import torch
from pydantic import PositiveFloat, PositiveInt

from normlab import schedules
from normlab.book.experiments.data.sequences import SequenceBatches, sequence_batches
from normlab.book.experiments.deep_norm.encoder_decoder import EncoderDecoder, Group
from normlab.book.experiments.sequence_training import train_on_sequences
from normlab.book.experiments.sweep import Seed, Steps, experiment

# around the best one of each group, which lie far apart
RATES: dict[Group, tuple[float, ...]] = {
    "post_norm": (6e-5, 2e-4, 6e-4, 2e-3),
    "pre_norm": (6e-4, 2e-3, 6e-3, 2e-2),
    "deep_norm": (6e-4, 2e-3, 6e-3, 2e-2),
}


def answered_batches(letters: int, *, seed: int) -> SequenceBatches:
    """Batches of reversal for a decoder, which reads each right letter before the next one.

    Shape:
        yields (2, N, T), the source and the answer one place later, and the answer (N, T).
    """
    for source, answer in sequence_batches(
        vocabulary=letters, length=letters, batch_size=16, seed=1000 + seed
    ):
        begin = torch.full_like(answer[:, :1], letters)
        yield torch.stack([source, torch.cat([begin, answer[:, :-1]], 1)]), answer


@experiment(
    skip=lambda group, lr: lr not in RATES[group],
    group=get_args(Group),
    lr=sorted({lr for rates in RATES.values() for lr in rates}),
    seed=range(3),
)
def encoder_decoder_training(
    group: Group, lr: PositiveFloat, seed: Seed, *, layers: PositiveInt = 20, steps: Steps = 100
) -> dict[str, Any]:
    """Train encoder and decoder to write sequences backward, by Adam with betas 0.9 and 0.98.

    Args:
        group: placement; DeepNorm with the constants of the two depths.
        lr: after a warmup of 40 steps.
        layers: of the encoder, and of the decoder.

    Returns:
        accuracies: share of right letters, before each update; every batch is new.
        final_accuracy: mean of the last ten steps.
        learned_at: first step, counted from 1, with an accuracy above 0.9; None if there is none.
    """
    model = EncoderDecoder(group, layers, width=32, letters=6, seed=seed)
    # fused: one pass over some thousand small tensors
    adam = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98), fused=True)
    found = train_on_sequences(
        model,
        answered_batches(6, seed=seed),
        steps=steps,
        optimizer=adam,
        scheduler=schedules.constant(adam, warmup_steps=40),
        stop_above=0.9,
    )
    return {
        "accuracies": [round(share, 4) for share in found.accuracies],
        "final_accuracy": found.final_accuracy(10),
        "learned_at": found.first_step_above(0.9),
    }
