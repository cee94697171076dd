"""What happens to a small Transformer when batch norm over tokens replaces layer norm?"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor

from normlab.experiments.data.sequences import SequenceBatches, Text, load_text, text_batches
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import TokenNorm, Transformer, make_transformer
from normlab.experiments.recording import rounded
from normlab.experiments.results import Result
from normlab.experiments.sequence_training import (
    make_optimizer,
    norm_inputs,
    sequence_loss,
    train_on_sequences,
)
from normlab.experiments.settings import Count, Index, Positive, Several
from normlab.layers import BatchNorm1d, LayerNorm, RMSNorm
from normlab.norms import NORMS

Norm = Literal["layer_norm", "rms_norm", "batch_norm"]
Placement = Literal["post_norm", "pre_norm"]
Batches = Literal["mixed", "small", "adjacent"]
Batch = tuple[Tensor, Tensor]


class TokenBatchNorm(BatchNorm1d):
    """BatchNorm of each feature over all tokens of the batch, for inputs (N, T, D).

    `BatchNorm1d` itself reads (N, T, D) as N samples of T channels: it would refuse, or, where
    T equals `num_features`, normalize each position.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (N, T, D) with the moments of N·T tokens, or with the running ones."""
        return super().forward(input.flatten(0, -2)).view_as(input)


def replace_by_batch_norm(model: Transformer) -> Transformer:
    """Put a :class:`TokenBatchNorm` with weight 1 and bias 0 where each LayerNorm stands."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LayerNorm):
                setattr(parent, name, TokenBatchNorm(child.normalized_shape[0]))
    return model


@dataclass(frozen=True)
class Config:
    """A causal model of characters, on the help topics that come with Python."""

    #: of each token, or "batch_norm" over all tokens
    norms: tuple[Norm, ...] = ("layer_norm", "rms_norm", "batch_norm")
    placements: tuple[Placement, ...] = ("pre_norm",)  #: of the norms in the blocks
    lrs: tuple[Positive, ...] = (3e-3, 1e-2)  #: learning rates of Adam, from the first step on
    #: "mixed" (windows from all over the text), "small" (the same, fewer of them) or "adjacent"
    #: (windows that follow one another); in training and in tests alike
    batches: tuple[Batches, ...] = ("mixed", "small", "adjacent")
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: each gives weights and windows
    layers: Count = 3  #: L
    steps: Count = 300  #: updates
    characters: Count = 200_000  #: of the text, from its start
    held_out: Count = 40_000  #: of them, the last, which are not trained on
    test_batches: Several = 30  #: held-out batches for losses and moments
    batch_size: Count = 16  #: N; `small_batch_size` for "small"
    small_batch_size: Count = 2  #: N of "small"
    width: Count = 32  #: D
    length: Count = 32  #: T

    def __post_init__(self) -> None:
        longest = self.batch_size * self.length
        if not longest < self.held_out < self.characters - longest:
            raise ValueError(
                f"held_out: got {self.held_out}; expected more than the {longest} characters of a "
                f"batch, and to leave as many of the {self.characters}"
            )

    def make_batches(self, text: Text, batches: Batches, *, seed: int) -> SequenceBatches:
        """Batches (N, T) of the named kind."""
        n, t = self.batch_size, self.length
        if batches != "adjacent":
            n = self.small_batch_size if batches == "small" else n
            return text_batches(text, length=t, batch_size=n, seed=seed)
        runs = text_batches(text, length=n * t, batch_size=1, seed=seed)
        return ((x.view(n, t), y.view(n, t)) for x, y in runs)

    def make_texts(self) -> tuple[Text, Text]:
        """Text to train on, and held-out text."""
        text = load_text(self.characters)
        return (
            text._replace(tokens=text.tokens[: -self.held_out]),
            text._replace(tokens=text.tokens[-self.held_out :]),
        )


def make_model(config: Config, norm: Norm, placement: Placement, *, seed: int) -> Transformer:
    """The network at its first weights; one seed gives every norm the same."""
    token_norm: TokenNorm = "layer_norm" if NORMS[norm].centered else "rms_norm"
    model = make_transformer(
        placement,
        layers=config.layers,
        seed=seed,
        norm=token_norm,
        vocabulary=load_text(config.characters).vocabulary,
        length=config.length,
        width=config.width,
        causal=True,
    )
    return replace_by_batch_norm(model) if NORMS[norm].over_batch else model


def token_fluctuation(moments: Sequence[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    r"""How much the moments of the features change from batch to batch.

    .. math:: f_\mu = \sqrt{\overline{(\mu_b - \bar\mu)^2 / \bar{\sigma^2}}}, \qquad
              f_{\sigma^2} = \sqrt{\overline{(\sigma_b^2 / \bar{\sigma^2} - 1)^2}}

    Args:
        moments: mean and variance of each feature, (D,) each, for each of at least two batches.

    Returns:
        f of the means and f of the variances; n independent tokens give about 1/√n for the first.
    """
    if len(moments) < 2:
        raise ValueError(f"moments: got those of {len(moments)} batch; expected 2 or more")
    means, variances = (torch.stack(part).double() for part in zip(*moments, strict=True))
    typical = variances.mean(0)
    spread = means - means.mean(0)
    unbiased = len(moments) / (len(moments) - 1)
    f_mean = (unbiased * spread.square() / typical).mean().sqrt().item()
    f_var = (unbiased * (variances / typical - 1).square()).mean().sqrt().item()
    return f_mean, f_var


@torch.no_grad()
def _losses(model: Transformer, batches: Sequence[Batch]) -> tuple[float, float]:
    """Mean loss in evaluation and in training mode; running moments are left as they are."""
    evaluated, training = (copy.deepcopy(model).train(mode) for mode in (False, True))
    by_running, by_batch = (
        statistics.fmean(sequence_loss(m, batch)[0].item() for batch in batches)
        for m in (evaluated, training)
    )
    return by_running, by_batch


@torch.no_grad()
def _fluctuations(model: Transformer, batches: Sequence[Batch]) -> tuple[float, float]:
    """Mean over all norms of the network, of what they read in evaluation mode."""
    norms = [m for m in model.modules() if isinstance(m, LayerNorm | RMSNorm | TokenBatchNorm)]
    model.eval()
    of_batches = []  # each with the moments that every norm reads
    for tokens, _ in batches:
        rows = (x.flatten(0, -2) for x in norm_inputs(model, norms, tokens))
        of_batches.append([(x.mean(0), (x - x.mean(0)).square().mean(0)) for x in rows])
    of_norms = map(token_fluctuation, zip(*of_batches, strict=True))
    of_means, of_variances = zip(*of_norms, strict=True)
    return statistics.fmean(of_means), statistics.fmean(of_variances)


def _train(
    config: Config, norm: Norm, placement: Placement, lr: float, batches: Batches, seed: int
) -> tuple[Transformer, float]:
    """A trained model, and the loss of its last steps."""
    train, _ = config.make_texts()
    model = make_model(config, norm, placement, seed=seed)
    curve = train_on_sequences(
        model,
        config.make_batches(train, batches, seed=1000 + seed),
        steps=config.steps,
        optimizer=make_optimizer(model, lr=lr),
    )
    return model, curve.final_loss()


def _test_batches(config: Config, text: Text, batches: Batches, seed: int) -> list[Batch]:
    return list(islice(config.make_batches(text, batches, seed=2000 + seed), config.test_batches))


def run_one(
    config: Config, norm: Norm, placement: Placement, lr: float, batches: Batches, seed: int
) -> dict[str, float]:
    """Train one model and measure it on held-out text.

    Measures:
        train_loss: mean of the last 20 steps, in training mode; every batch is new.
        eval_loss: on held-out text, in evaluation mode.
        batch_loss: on the same batches, in training mode: batch norm uses each batch's moments.
        mean_fluctuation: see :func:`token_fluctuation`; mean over all norms of the network.
        var_fluctuation: the same for variances.
    """
    model, train_loss = _train(config, norm, placement, lr, batches, seed)
    tests = _test_batches(config, config.make_texts()[1], batches, seed)
    eval_loss, batch_loss = _losses(model, tests)
    mean_fluctuation, var_fluctuation = _fluctuations(model, tests)
    return {
        "train_loss": rounded(train_loss),
        "eval_loss": rounded(eval_loss),
        "batch_loss": rounded(batch_loss),
        "mean_fluctuation": rounded(mean_fluctuation),
        "var_fluctuation": rounded(var_fluctuation),
    }


run = Sweep(
    run_one, norm="norms", placement="placements", lr="lrs", batches="batches", seed="seeds"
)


def gaps(result: Result, **where: Any) -> list[float]:
    """Loss with running moments minus loss with those of the batch, on held-out text."""
    return [o.eval_loss - o.batch_loss for o in result.of(**where)]


def losses_on_both_texts(
    config: Config, norm: Norm, *, lr: float, seed: int
) -> dict[str, tuple[float, float]]:
    """Train a pre-norm model on mixed batches; its losses on the text it knows and on the other.

    Returns:
        "training text" and "held-out text" -> loss in evaluation mode and in training mode, on
        the same batches.
    """
    model, _ = _train(config, norm, "pre_norm", lr, "mixed", seed)
    known, new = (
        _losses(model, _test_batches(config, text, "mixed", seed)) for text in config.make_texts()
    )
    return {"training text": known, "held-out text": new}
