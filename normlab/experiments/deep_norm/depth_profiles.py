"""What reaches the first layer of a deep Transformer, and the last, before any training?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import torch

from normlab.experiments.data.sequences import reversal_batches
from normlab.experiments.networks.transformer import Placement, Transformer, make_transformer
from normlab.experiments.recording import rounded
from normlab.experiments.sequence_training import gradient_norms, token_variance
from normlab.experiments.settings import Count, Index, check_settings
from normlab.residual import deep_norm_constants

__all__ = ["ARMS", "Arm", "Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Arm:
    """A place of the norm, and the two halves of DeepNorm.

    Attributes:
        placement: as in :func:`make_transformer`.
        alpha: factor of the skips; None takes the paper's value.
        beta: gain of the initialization; None takes the paper's value.
        on_the_branch: the paper's alpha multiplies the branch instead of the skip.
    """

    placement: Placement
    alpha: float | None = None
    beta: float | None = None
    on_the_branch: bool = False

    def make_model(self, *, layers: int, seed: int, **sizes: Any) -> Transformer:
        """Build the arm's network; `sizes` as in :func:`make_transformer`."""
        alpha = self.alpha
        if self.on_the_branch:  # norm(x + alpha F) is norm(x / alpha + F), but for eps
            constant = deep_norm_constants(encoder_layers=layers).encoder_alpha
            assert constant is not None
            alpha = 1 / constant
        return make_transformer(
            self.placement, layers=layers, seed=seed, alpha=alpha, beta=self.beta, **sizes
        )


ARMS: dict[str, Arm] = {
    "none": Arm("none"),
    "post_norm": Arm("post_norm"),
    "pre_norm": Arm("pre_norm"),
    "deep_norm": Arm("deep_norm"),
    "alpha only": Arm("deep_norm", beta=1.0),
    "beta only": Arm("deep_norm", alpha=1.0),
    "alpha on the branch": Arm("deep_norm", on_the_branch=True),
}


@dataclass(frozen=True)
class Config:
    """Initial weights, one batch of the reversal task, no step.

    Attributes:
        arms: keys of :data:`ARMS`.
        depths: numbers of layers.
        seeds: each gives weights and a batch.
        width: D.
        heads: of each attention.
        expansion: hidden units of a feed-forward network, in multiples of `width`.
        vocabulary: number of tokens.
        length: T.
        batch_size: N.
    """

    arms: tuple[str, ...] = ("post_norm", "pre_norm", "deep_norm", "alpha only", "beta only")
    depths: tuple[Count, ...] = (10, 20, 50, 100, 300, 1000)
    seeds: tuple[Index, ...] = (0, 1, 2)
    width: Count = 16
    heads: Count = 2
    expansion: Count = 2
    vocabulary: Count = 8
    length: Count = 8
    batch_size: Count = 16

    def __post_init__(self) -> None:
        check_settings(self)
        unknown = set(self.arms) - set(ARMS)
        if unknown:
            raise ValueError(f"arms: got {sorted(unknown)}; expected some of {', '.join(ARMS)}")
        for name in ("depths", "seeds"):
            if not getattr(self, name):
                raise ValueError(f"{name}: got none; expected one or more")


@dataclass(frozen=True)
class Outcome:
    """One network.

    Attributes:
        arm: key of :data:`ARMS`.
        depth: layers.
        seed: of weights and batch.
        layers: numbers of the layers shown below, the first is 1; at most 41 of them.
        gradient_norms: at the last feed-forward matrix of these layers.
        token_variances: share of these layers' outputs that differs between tokens.
        gradient_spread: largest over smallest gradient norm, of all layers.
        rms: root mean square of the last layer's output.
    """

    arm: str
    depth: int
    seed: int
    layers: tuple[int, ...]
    gradient_norms: tuple[float, ...]
    token_variances: tuple[float, ...]
    gradient_spread: float
    rms: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def of(self, arm: str, depth: int) -> list[Outcome]:
        """One outcome for each seed."""
        return [o for o in self.outcomes if (o.arm, o.depth) == (arm, depth)]

    def median_spread(self, arm: str, depth: int) -> float:
        """Median over seeds of the gradient spread."""
        return statistics.median(o.gradient_spread for o in self.of(arm, depth))


def _shown(depth: int, most: int = 41) -> list[int]:
    """Layer numbers from 1 to `depth`, evenly spaced, at most `most` of them."""
    count = min(depth, most)
    return [1 + round(i * (depth - 1) / max(count - 1, 1)) for i in range(count)]


def run_one(config: Config, arm: str, depth: int, seed: int) -> Outcome:
    """Measure one network, in float64: post-norm gradients underflow float32 at 1000 layers."""
    sizes = {"vocabulary": config.vocabulary, "length": config.length}
    model = ARMS[arm].make_model(
        layers=depth,
        seed=seed,
        width=config.width,
        heads=config.heads,
        expansion=config.expansion,
        **sizes,
    )
    model.double()
    batch = next(reversal_batches(batch_size=config.batch_size, seed=1000 + seed, **sizes))
    norms = gradient_norms(model, batch)
    with torch.no_grad():
        states = model.hidden_states(batch[0])
    shown = _shown(depth)
    return Outcome(
        arm,
        depth,
        seed,
        tuple(shown),
        tuple(rounded(norms[i - 1]) for i in shown),
        tuple(rounded(token_variance(states[i])) for i in shown),
        rounded(max(norms) / min(norms)),
        rounded(states[-1].square().mean().sqrt().item()),
    )


def run(config: Config) -> Result:
    """Measure every arm at every depth with every seed."""
    return Result(
        tuple(
            run_one(config, arm, depth, seed)
            for arm in config.arms
            for depth in config.depths
            for seed in config.seeds
        )
    )
