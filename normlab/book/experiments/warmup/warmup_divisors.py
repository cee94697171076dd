"""Where do the tokens' differences and the gradients go in the first ten updates of Post-LN?"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import PositiveInt
from torch import Tensor

from normlab.book.experiments.data.sequences import sequence_batches
from normlab.book.experiments.networks.transformer import Transformer
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sequence_training import (
    gradient_norms,
    make_optimizer,
    norm_inputs,
    reversal_network,
    token_variance,
    train_on_sequences,
)
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import redraw_signs_

State = Literal[
    "start", "1 update", "1 update, random signs", "10 updates", "10 updates, common part removed"
]
LR = 1e-2  # of Adam, from the first update


def remove_common_part(model: Transformer) -> None:
    """Subtract from what each branch adds its mean over the tokens of a sequence, from now on."""
    for block in model.blocks:
        block.sublayer.register_forward_hook(lambda _, __, out: out - out.mean(1, keepdim=True))


@experiment(state=get_args(State), seed=range(5))
def warmup_divisors(state: State, seed: Seed, *, layers: PositiveInt = 6) -> dict[str, Any]:
    """Measure Post-LN on reversal, on one probe batch, before and after its first updates.

    Args:
        state: after how many updates of Adam at the rate 0.01, without warmup; and one of two
            changes: each weight as far away from the start, with a random sign; or what a branch
            adds to all tokens of a sequence alike taken away.

    Returns:
        divisors: what each norm divides by, the geometric mean over the tokens.
        branch_variances: share of what each branch adds that differs between the tokens.
        branch_sizes: root mean square of what each branch adds.
        token_variance: of the final features.
        gradient_ratio: gradient at the last matrix of the top layer over that of the bottom layer.
    """
    model, batches = reversal_network("post_norm", layers=layers, seed=seed)
    probe = next(sequence_batches(seed=11_000 + seed))
    steps = 0 if state == "start" else int(state.split()[0])
    train_on_sequences(model, batches, steps=steps, optimizer=make_optimizer(model, lr=LR))
    if state.endswith("random signs"):
        start, _ = reversal_network("post_norm", layers=layers, seed=seed)
        redraw_signs_(model.parameters(), start.parameters(), seed)
    if state.endswith("removed"):
        remove_common_part(model)
    added: list[Tensor] = []
    for block in model.blocks:
        block.sublayer.register_forward_hook(lambda _, __, out: added.append(out))
    sums = norm_inputs(model, [block.norm for block in model.blocks], probe[0])
    branches = [f.detach().double() for f in added]
    gradients = gradient_norms(model, probe)
    return {
        "divisors": [rounded(x.std(-1, correction=0).log().mean().exp().item()) for x in sums],
        "branch_variances": [rounded(token_variance(f)) for f in branches],
        "branch_sizes": [rounded(f.square().mean().sqrt().item()) for f in branches],
        "token_variance": rounded(token_variance(model.features(probe[0]))),
        "gradient_ratio": rounded(gradients[-1] / gradients[0]),
    }
