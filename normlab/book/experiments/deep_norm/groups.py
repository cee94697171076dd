"""Groups of runs: places of the norm, and the two halves of DeepNorm one at a time."""

from __future__ import annotations

from typing import Any, Literal, get_args

from normlab.book.experiments.data.sequences import SequenceBatches, sequence_batches
from normlab.book.experiments.networks.transformer import Placement, Transformer, make_transformer

# a placement; or DeepNorm with beta = 1, or with alpha = 1; or one number alone, with the branches
# of "beta only" made by alpha, and those of "alpha only" made by beta, and at 50 layers the pile
# of "pre_norm" made by alpha
Group = Literal[Placement, "alpha only", "beta only", "larger alpha", "larger beta", "alpha of 4"]
# of the network whose first updates are looked at, and of the one that trains or is looked at whole
Size = Literal["small", "large"]
WIDTHS = {"small": {"width": 16, "heads": 2}, "large": {"width": 32, "heads": 4}}
LETTERS = {"small": 8, "large": 6}  # of the alphabet, and of a sequence


def make_model(group: Group, size: Size, *, layers: int, seed: int) -> Transformer:
    """Build the network of a group."""
    options: dict[str, Any] = dict(WIDTHS[size])
    if group == "alpha only":
        options["beta"] = 1.0
    elif group == "beta only":
        options["alpha"] = 1.0
    elif group == "larger alpha":  # 1 / alpha = (8N)^(-1/2), the beta² of "beta only"
        options |= {"alpha": (8 * layers) ** 0.5, "beta": 1.0}
    elif group == "larger beta":  # beta² = (2N)^(-1/4), the 1 / alpha of "alpha only"
        options |= {"alpha": 1.0, "beta": (2 * layers) ** -0.125}
    elif group == "alpha of 4":
        options |= {"alpha": 4.0, "beta": 1.0}
    placement: Any = group if group in get_args(Placement) else "deep_norm"
    return make_transformer(
        placement,
        layers=layers,
        seed=seed,
        vocabulary=LETTERS[size],
        length=LETTERS[size],
        expansion=2,
        **options,
    )


def make_batches(size: Size, *, seed: int) -> SequenceBatches:
    """Batches of reversal, from a random stream apart from that of the weights."""
    letters = LETTERS[size]
    return sequence_batches(vocabulary=letters, length=letters, batch_size=16, seed=1000 + seed)
