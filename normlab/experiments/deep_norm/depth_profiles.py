"""What reaches the first layer of a deep Transformer, and the last, before any training?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from normlab.experiments.deep_norm.groups import Group, Sizes, make_batches, make_model
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.recording import rounded
from normlab.experiments.sequence_training import gradient_norms, token_variance
from normlab.experiments.settings import Count, Index


@dataclass(frozen=True)
class Config(Sizes):
    """Initial weights, one batch of the reversal task, no step."""

    #: placements, and DeepNorm's halves
    groups: tuple[Group, ...] = ("post_norm", "pre_norm", "deep_norm", "alpha only", "beta only")
    depths: tuple[Count, ...] = (10, 20, 50, 100, 300, 1000)  #: numbers of layers
    seeds: tuple[Index, ...] = (0, 1, 2)  #: each gives weights and a batch


def _shown(depth: int, most: int = 41) -> tuple[int, ...]:
    """Layer numbers from 1 to `depth`, evenly spaced, at most `most` of them."""
    count = min(depth, most)
    return tuple(1 + round(i * (depth - 1) / max(count - 1, 1)) for i in range(count))


def run_one(config: Config, group: Group, depth: int, seed: int) -> dict[str, Any]:
    """Measure one network, in float64: post-norm gradients underflow float32 at 1000 layers.

    Measures:
        layers: numbers of the layers shown below, the first is 1; at most 41 of them.
        gradient_norms: at the last feed-forward matrix of these layers.
        token_variances: share of these layers' outputs that differs between tokens.
        sizes: root mean square of these layers' outputs.
        gradient_spread: largest over smallest gradient norm, of all layers.
    """
    model = make_model(group, config, layers=depth, seed=seed).double()
    batch = next(make_batches(config, seed=seed))
    norms = gradient_norms(model, batch)
    with torch.no_grad():
        states = model.hidden_states(batch[0])
    shown = _shown(depth)
    return {
        "layers": shown,
        "gradient_norms": tuple(rounded(norms[i - 1]) for i in shown),
        "token_variances": tuple(rounded(token_variance(states[i])) for i in shown),
        "sizes": tuple(rounded(states[i].square().mean().sqrt().item()) for i in shown),
        "gradient_spread": rounded(max(norms) / min(norms)),
    }


run = Sweep(run_one, group="groups", depth="depths", seed="seeds")
