"""What reaches the first layer of a deep Transformer, and the last, before any training?"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import PositiveInt

from normlab.book.experiments.deep_norm.groups import Group, make_batches, make_model
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sequence_training import gradient_norms, token_variance
from normlab.book.experiments.sweep import Seed, experiment


def _shown(depth: int, most: int = 41) -> list[int]:
    """Layer numbers from 1 to `depth`, evenly spaced, at most `most` of them."""
    count = min(depth, most)
    return [1 + round(i * (depth - 1) / max(count - 1, 1)) for i in range(count)]


@experiment(
    group=("post_norm", "pre_norm", "deep_norm", "alpha only", "beta only"),
    depth=(10, 20, 50, 100, 300, 1000),
    seed=range(3),
)
def depth_profiles(group: Group, depth: PositiveInt, seed: Seed) -> dict[str, Any]:
    """Measure a Transformer at its initial weights on one batch of reversal.

    It does so in float64: float32 rounds away how far the tokens of post-norm merge.

    Args:
        group: placement, or one of DeepNorm's halves.

    Returns:
        layers: numbers of the layers shown below, the first is 1; at most 41 of them.
        gradient_norms: at the last feed-forward matrix of these layers.
        token_variances: share of these layers' outputs that differs between tokens.
        sizes: root mean square of these layers' outputs.
        gradient_spread: largest over smallest gradient norm, of all layers.
    """
    model = make_model(group, "large", layers=depth, seed=seed).double()
    batch = next(make_batches("large", seed=seed))
    norms = gradient_norms(model, batch)
    with torch.no_grad():
        states = model.hidden_states(batch[0])
    shown = _shown(depth)
    return {
        "layers": shown,
        "gradient_norms": [rounded(norms[i - 1]) for i in shown],
        "token_variances": [rounded(token_variance(states[i])) for i in shown],
        "sizes": [rounded(states[i].square().mean().sqrt().item()) for i in shown],
        "gradient_spread": rounded(max(norms) / min(norms)),
    }
