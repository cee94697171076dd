"""What happens inside a Post-LN Transformer at each rate and length of the warmup?"""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveFloat

from normlab import schedules
from normlab.book.experiments.data.sequences import sequence_batches
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sequence_training import (
    gradient_norms,
    make_optimizer,
    reversal_network,
    sequence_loss,
    token_variance,
    train_on_sequences,
)
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.warmup.warmup_length import warmup_length
from normlab.book.experiments.warmup.warmup_mechanism import check_ascending


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
    model, batches = reversal_network("post_norm", seed=seed)
    probe = next(sequence_batches(seed=11_000 + seed))
    losses: list[float] = []
    variances: list[float] = []
    gradients: list[float] = []

    def measure(step: int) -> None:
        if step in check_at:
            losses.append(rounded(sequence_loss(model, probe)[0].item()))
            variances.append(rounded(token_variance(model.features(probe[0]))))
            gradients.append(rounded(gradient_norms(model, probe)[0]))

    measure(0)
    optimizer = make_optimizer(model, lr=lr)
    train_on_sequences(
        model,
        batches,
        steps=check_at[-1],
        optimizer=optimizer,
        scheduler=schedules.constant(optimizer, warmup_steps=length),
        after_step=measure,
    )
    return {"losses": losses, "token_variances": variances, "gradients": gradients}
