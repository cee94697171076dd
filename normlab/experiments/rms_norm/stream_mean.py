"""Does RMSNorm learn as well if the stream starts with a mean, which LayerNorm cannot see?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from normlab.experiments.former_sweep import Sweep, grid
from normlab.experiments.rms_norm import language_model
from normlab.experiments.rms_norm.language_model import Norm, center_stream_, replace_norms
from normlab.experiments.settings import Count, Index, Positive
from normlab.norms import NORMS


@dataclass(frozen=True)
class Config:
    """The language model, with the same number added to every entry of its token embedding."""

    #: what is added before training; the entries have variance 1
    offsets: tuple[Positive, ...] = (1.0, 3.0)
    lrs: tuple[Positive, ...] = (3e-3, 1e-2, 3e-2)  #: learning rates of the model with RMSNorm
    #: of the model with LayerNorm, whose norms are exchanged after training; it starts with the
    #: last of the offsets
    layer_norm_lr: Positive = 1e-2
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: each gives weights and windows
    steps: Count = 300  #: updates


def _points(config: Config) -> Iterator[dict[str, Any]]:
    yield from grid(
        norm=["layer_norm"],
        offset=config.offsets[-1:],
        lr=[config.layer_norm_lr],
        seed=config.seeds,
    )
    yield from grid(norm=["rms_norm"], offset=config.offsets, lr=config.lrs, seed=config.seeds)


def run_one(config: Config, norm: Norm, offset: float, lr: float, seed: int) -> dict[str, Any]:
    """Train one model; exchange the norms of one with LayerNorm.

    Measures:
        held_out: loss on the last fifth of the text after training, in nats for a character.
        share_before: share of the mean in the mean square at the first norm, before training.
        share_after: the same after training.
        exchanged: held-out loss with RMSNorm in place of LayerNorm, all weights as they are; None
            for a model with RMSNorm.
        converted: the same with the stream centered, too.
    """
    settings = language_model.Config(steps=config.steps)
    text, held_out = language_model.split_text(settings)
    tokens, _ = next(language_model.make_batches(settings, held_out, seed))
    model = language_model.make_model(settings, norm, seed)
    with torch.no_grad():
        model.tokens.weight += offset
    before = language_model.mean_shares(model, tokens)[0]
    batches = language_model.make_batches(settings, text, seed)
    language_model.train(model, batches, lr=lr, steps=config.steps)
    found: dict[str, Any] = {
        "held_out": language_model.held_out_loss(model, settings),
        "share_before": before,
        "share_after": language_model.mean_shares(model, tokens)[0],
        "exchanged": None,
        "converted": None,
    }
    if NORMS[norm].centered:
        other = replace_norms(model, "rms_norm")
        found["exchanged"] = language_model.held_out_loss(other, settings)
        center_stream_(other)
        found["converted"] = language_model.held_out_loss(other, settings)
    return found


run = Sweep(run_one, _points)
