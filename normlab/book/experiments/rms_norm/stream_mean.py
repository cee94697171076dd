"""Does RMSNorm learn as well if the stream starts with a mean, which LayerNorm cannot see?"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import NonNegativeFloat, PositiveFloat

from normlab.book.experiments.rms_norm.language_model import (
    Norm,
    center_stream_,
    held_out_loss,
    make_batches,
    make_model,
    mean_shares,
    replace_norms,
    split_text,
)
from normlab.book.experiments.sequence_training import make_optimizer
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import fit, token_loss
from normlab.norms import NORMS

LAYER_NORM_LR = 1e-2


@experiment(
    norm=("layer_norm", "rms_norm"),
    offset=(0.0, 1.0, 3.0),
    lr=(3e-3, 1e-2, 3e-2),
    seed=range(5),
    # layer norm, whose norms are exchanged, has one rate; the rest of 0 is in `language_model`
    skip=lambda norm, offset, lr: (
        offset == 1.0 or lr != LAYER_NORM_LR if NORMS[norm].centered else offset == 0.0
    ),
)
def stream_mean(
    norm: Norm, offset: NonNegativeFloat, lr: PositiveFloat, seed: Seed
) -> dict[str, Any]:
    """Train the language model, with one number added to every entry of its token embedding.

    Args:
        offset: what is added before training; the entries have variance 1.

    Returns:
        held_out: loss on the last fifth of the text after training, in nats for a character.
        share_before: share of the mean in the mean square at the first norm, before training.
        exchanged: held-out loss with RMSNorm in place of LayerNorm, all weights as they are; None
            for a model with RMSNorm.
        converted: the same with the stream centered, too.
    """
    text, held_out = split_text()
    tokens, _ = next(make_batches(held_out, seed))
    model = make_model(norm, seed)
    with torch.no_grad():
        model.tokens.weight += offset
    before = mean_shares(model, tokens)[0]
    fit(model, make_optimizer(model, lr=lr), make_batches(text, seed), 300, loss_of=token_loss)
    found: dict[str, Any] = {
        "held_out": held_out_loss(model),
        "share_before": before,
        "exchanged": None,
        "converted": None,
    }
    if NORMS[norm].centered:
        other = replace_norms(model, "rms_norm")
        found["exchanged"] = held_out_loss(other)
        center_stream_(other)
        found["converted"] = held_out_loss(other)
    return found
