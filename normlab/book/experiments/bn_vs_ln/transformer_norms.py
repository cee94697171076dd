"""What happens to a small Transformer when batch norm over tokens replaces layer norm?"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any, Literal

import pandas as pd
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from normlab.book.experiments.data.sequences import SequenceBatches, Text, load_text, text_batches
from normlab.book.experiments.networks.transformer import TokenNorm, Transformer, make_transformer
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sequence_training import make_optimizer, norm_inputs
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.tables import where
from normlab.book.experiments.training import fit, token_loss
from normlab.layers import BatchNorm1d, LayerNorm, RMSNorm
from normlab.norms import NORMS

Norm = Literal["layer_norm", "rms_norm", "batch_norm"]
Placement = Literal["post_norm", "pre_norm"]
Batches = Literal["mixed", "small", "adjacent"]
Batch = tuple[Tensor, Tensor]
CHARACTERS = 200_000  # of the text, from its start
HELD_OUT = 40_000  # of them, the last, which are not trained on
BATCH_SIZES: dict[Batches, int] = {"mixed": 16, "small": 2, "adjacent": 16}  # N
LENGTH = 32  # T


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


def make_batches(text: Text, batches: Batches, *, seed: int) -> SequenceBatches:
    """Batches (N, T) of the named kind."""
    n, t = BATCH_SIZES[batches], LENGTH
    if batches != "adjacent":
        return text_batches(text, length=t, batch_size=n, seed=seed)
    runs = text_batches(text, length=n * t, batch_size=1, seed=seed)
    return ((x.view(n, t), y.view(n, t)) for x, y in runs)


def make_texts() -> tuple[Text, Text]:
    """Text to train on, and held-out text."""
    text = load_text(CHARACTERS)
    return (
        text._replace(tokens=text.tokens[:-HELD_OUT]),
        text._replace(tokens=text.tokens[-HELD_OUT:]),
    )


def make_model(norm: Norm, placement: Placement, *, seed: int, layers: int = 3) -> Transformer:
    """The network at its first weights; one seed gives every norm the same."""
    token_norm: TokenNorm = "layer_norm" if NORMS[norm].centered else "rms_norm"
    model = make_transformer(
        placement,
        layers=layers,
        seed=seed,
        norm=token_norm,
        vocabulary=load_text(CHARACTERS).vocabulary,
        length=LENGTH,
        width=32,
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
        statistics.fmean(token_loss(m, batch).item() for batch in batches)
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
    model: Transformer, lr: float, batches: Batches, seed: int, steps: int
) -> tuple[Transformer, float]:
    """The model, trained, and the mean loss of its last 20 steps."""
    train, _ = make_texts()
    shown = make_batches(train, batches, seed=1000 + seed)
    losses = fit(model, make_optimizer(model, lr=lr), shown, steps, loss_of=token_loss)
    last = losses[-20:]
    return model, sum(last) / len(last)


def _test_batches(text: Text, batches: Batches, seed: int, count: int) -> list[Batch]:
    return list(islice(make_batches(text, batches, seed=2000 + seed), count))


@experiment(
    norm=("layer_norm", "rms_norm", "batch_norm"),
    placement=("pre_norm",),
    lr=(3e-3, 1e-2),
    batches=("mixed", "small", "adjacent"),
    seed=range(5),
)
def transformer_norms(
    norm: Norm,
    placement: Placement,
    lr: PositiveFloat,
    batches: Batches,
    seed: Seed,
    *,
    layers: PositiveInt = 3,
    steps: Steps = 300,
    test_batches: Annotated[int, Field(ge=2)] = 30,
) -> dict[str, float]:
    """Train a causal model of characters on Python's help topics; measure it on held-out text.

    Args:
        norm: of each token, or "batch_norm" over all tokens.
        batches: "mixed" (windows from all over the text), "small" (the same, fewer of them) or
            "adjacent" (windows that follow one another); in training and in tests alike.
        test_batches: held-out batches for losses and moments.

    Returns:
        train_loss: mean of the last 20 steps, in training mode; every batch is new.
        eval_loss: on held-out text, in evaluation mode.
        batch_loss: on the same batches, in training mode: batch norm uses each batch's moments.
        mean_fluctuation: see :func:`token_fluctuation`; mean over all norms of the network.
        var_fluctuation: the same for variances.
    """
    model = make_model(norm, placement, seed=seed, layers=layers)
    model, train_loss = _train(model, lr, batches, seed, steps)
    tests = _test_batches(make_texts()[1], batches, seed, test_batches)
    eval_loss, batch_loss = _losses(model, tests)
    mean_fluctuation, var_fluctuation = _fluctuations(model, tests)
    return {
        "train_loss": rounded(train_loss),
        "eval_loss": rounded(eval_loss),
        "batch_loss": rounded(batch_loss),
        "mean_fluctuation": rounded(mean_fluctuation),
        "var_fluctuation": rounded(var_fluctuation),
    }


def gaps(table: pd.DataFrame, **values: Any) -> list[float]:
    """Loss with running moments minus loss with those of the batch, on held-out text."""
    rows = where(table, **values)
    return list(rows.eval_loss - rows.batch_loss)
