"""What happens inside a Post-LN Transformer at each rate and length of the warmup?"""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveFloat

from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sequence_training import reversal_network
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.warmup.warmup_length import warmup_length
from normlab.book.experiments.warmup.warmup_mechanism import check_ascending, watch


@experiment(
    length=warmup_length.grid["length"],
    lr=warmup_length.grid["lr"],
    seed=warmup_length.grid["seed"],
    condition=check_ascending,
)
def warmup_inside(
    length: NonNegativeInt,
    lr: PositiveFloat,
    seed: Seed,
    *,
    check_at: tuple[NonNegativeInt, ...] = (0, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300),
) -> dict[str, list[float]]:
    """Train Post-LN as `warmup_length` does, and measure it on one probe batch on the way.

    Args:
        length: updates of the linear warmup; 0 starts at the peak.
        check_at: numbers of updates after which to measure, in ascending order from 0.

    Returns:
        losses: on the probe batch.
        token_variances: share of the features before the output layer that differs between
            the tokens of a sequence.
        gradients: norm of the gradient at the last feed-forward matrix of the bottom layer.
    """
    network = reversal_network("post_norm", seed=seed)
    found = watch(*network, seed=seed, lr=lr, warmup=length, check_at=check_at)
    return {
        "losses": [rounded(loss) for loss in found["losses"]],
        "token_variances": [rounded(share) for share in found["token_variances"]],
        "gradients": [rounded(layers[0]) for layers in found["gradients"]],
    }
