"""Groups of runs: places of the norm, and the two halves of DeepNorm one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from normlab.experiments.data.sequences import SequenceBatches, sequence_batches
from normlab.experiments.networks.transformer import Placement, Transformer, make_transformer
from normlab.experiments.settings import Count
from normlab.residual import deep_norm_constants

# a placement; or DeepNorm with beta = 1, with alpha = 1, or with its alpha as factor of the branch
# instead of the skip
Group = Literal[Placement, "alpha only", "beta only", "alpha on the branch"]


@dataclass(frozen=True)
class Sizes:
    """A small Transformer and the sequences that it reads."""

    width: Count = 16  #: D
    heads: Count = 2  #: of each attention
    expansion: Count = 2  #: hidden units of a feed-forward network, in multiples of `width`
    vocabulary: Count = 8  #: number of tokens; chance is one in so many
    length: Count = 8  #: T
    batch_size: Count = 16  #: N


def make_model(group: Group, sizes: Any, *, layers: int, seed: int, **changes: Any) -> Transformer:
    """Build the network of a group; `changes` of :func:`make_transformer` win over `sizes`."""
    options: dict[str, Any] = {
        name: getattr(sizes, name)
        for name in ("vocabulary", "length", "width", "heads", "expansion")
        if name not in changes
    }
    if group == "alpha only":
        options["beta"] = 1.0
    elif group == "beta only":
        options["alpha"] = 1.0
    elif group == "alpha on the branch":  # norm(x + alpha F) is norm(x / alpha + F), but for eps
        alpha = deep_norm_constants(encoder_layers=layers).encoder_alpha
        assert alpha is not None
        options["alpha"] = 1 / alpha
    placement: Any = group if group in get_args(Placement) else "deep_norm"
    return make_transformer(placement, layers=layers, seed=seed, **options, **changes)


def make_batches(sizes: Any, *, seed: int) -> SequenceBatches:
    """Batches of reversal; other draws than those of the weights."""
    return sequence_batches(
        vocabulary=sizes.vocabulary,
        length=sizes.length,
        batch_size=sizes.batch_size,
        seed=1000 + seed,
    )
