"""Train one small Transformer, and measure what happens inside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LRScheduler

from normlab.book.experiments.data.sequences import (
    SequenceBatches,
    load_text,
    sequence_batches,
    text_batches,
)
from normlab.book.experiments.networks.transformer import Placement, Transformer, make_transformer
from normlab.book.experiments.training import fit

OptimizerName = Literal["adam", "radam", "sgd"]


def reversal_network(
    placement: Placement, *, layers: int = 6, seed: int
) -> tuple[Transformer, SequenceBatches]:
    """A network at its initial weights, and batches of random digits to reverse."""
    return make_transformer(placement, layers=layers, seed=seed), sequence_batches(seed=1000 + seed)


def text_network(
    placement: Placement, *, layers: int = 6, seed: int
) -> tuple[Transformer, SequenceBatches]:
    """A causal network at its initial weights, and windows of 32 characters of Python's help."""
    text = load_text()
    model = make_transformer(
        placement, layers=layers, seed=seed, vocabulary=text.vocabulary, length=32, causal=True
    )
    return model, text_batches(text, length=32, batch_size=16, seed=1000 + seed)


def sequence_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, float]:
    """Mean cross-entropy over all positions of a batch, and the share of right tokens."""
    x, y = batch
    logits = model(x)
    loss = cross_entropy(logits.flatten(0, 1), y.flatten())
    return loss, (logits.argmax(-1) == y).double().mean().item()


@dataclass(frozen=True)
class Curve:
    """What one training run recorded, one entry for each step."""

    #: before each update; every batch is new, so this is no training-set loss
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]  #: share of right tokens, before each update
    lrs: tuple[float, ...] = ()  #: learning rate of each update

    def final_loss(self, steps: int = 20) -> float:
        """Mean loss of the last steps."""
        return sum(self.losses[-steps:]) / len(self.losses[-steps:])

    def final_accuracy(self, steps: int = 20) -> float:
        """Mean accuracy of the last steps."""
        return sum(self.accuracies[-steps:]) / len(self.accuracies[-steps:])

    def best_accuracy(self, steps: int = 20) -> float:
        """Largest mean accuracy of so many steps in a row."""
        count = min(steps, len(self.accuracies))
        starts = range(len(self.accuracies) - count + 1)
        return max(sum(self.accuracies[i : i + count]) / count for i in starts)

    def first_step_above(self, accuracy: float) -> int | None:
        """First step, counted from 1, with a larger accuracy; None if there is none."""
        return next((i + 1 for i, a in enumerate(self.accuracies) if a > accuracy), None)


def make_optimizer(
    model: nn.Module, *, lr: float, optimizer: OptimizerName = "adam"
) -> torch.optim.Optimizer:
    """Adam or RAdam with betas 0.9 and 0.98, or SGD with momentum 0.9.

    Source:
        the betas: vaswani2017attention, Section 5.3; RAdam: liu2020variance.
    """
    if not (math.isfinite(lr) and lr > 0):
        raise ValueError(f"lr: got {lr}; expected a positive number, such as 1e-3")
    if optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    if optimizer not in ("adam", "radam"):
        raise ValueError(f"optimizer: got {optimizer!r}; expected 'adam', 'radam' or 'sgd'")
    kind = torch.optim.Adam if optimizer == "adam" else torch.optim.RAdam
    return kind(model.parameters(), lr=lr, betas=(0.9, 0.98))


def train_on_sequences(
    model: nn.Module,
    batches: SequenceBatches,
    *,
    steps: int,
    optimizer: torch.optim.Optimizer,
    scheduler: LRScheduler | None = None,
    max_grad_norm: float = math.inf,
    stop_above: float | None = None,
    after_step: Callable[[int], None] | None = None,
) -> Curve:
    """Minimize the cross-entropy over all positions for a number of steps.

    Args:
        scheduler: built on `optimizer`, stepped after each update; None keeps the rate.
        max_grad_norm: longer gradients of all parameters together are cut to this norm.
        stop_above: stop once 20 steps in a row have a larger mean accuracy; None goes on.
        after_step: called with 1, 2, ... after each update, to measure something.

    Returns:
        Loss, accuracy and rate of each step. A run whose loss is no longer finite stops there.

    Conventions:
        deterministic for a given model and batches (one thread).
    """
    accuracies: list[float] = []
    lrs: list[float] = []

    def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss, accuracy = sequence_loss(model, batch)
        accuracies.append(accuracy)
        lrs.append(float(optimizer.param_groups[0]["lr"]))
        return loss

    def after(step: int) -> bool:
        if after_step is not None:
            after_step(step)
        return stop_above is not None and step >= 20 and sum(accuracies[-20:]) > 20 * stop_above

    losses = fit(
        model,
        optimizer,
        batches,
        steps,
        loss_of=loss_of,
        max_grad_norm=max_grad_norm,
        scheduler=scheduler,
        after_step=after,
    )
    return Curve(tuple(losses), tuple(accuracies), tuple(lrs))


def gradient_norms(model: Transformer, batch: tuple[Tensor, Tensor]) -> list[float]:
    """Norm of the loss gradient at each layer's last feed-forward matrix; keeps every `.grad`."""
    loss, _ = sequence_loss(model, batch)
    return [g.double().norm().item() for g in torch.autograd.grad(loss, model.matrices())]


def token_variance(hidden: Tensor) -> float:
    """Share of a hidden state (N, T, D) that differs between the tokens of a sequence.

    Returns:
        Variance over the tokens, averaged over features and sequences, divided by the mean
        square; 0 when all tokens of a sequence are the same vector.
    """
    x = hidden.detach().double()
    differing = (x - x.mean(1, keepdim=True)).square().mean()
    return (differing / x.square().mean()).item()


@torch.no_grad()
def norm_inputs(model: nn.Module, norms: Iterable[nn.Module], tokens: Tensor) -> list[Tensor]:
    """What each of some norms inside a model reads, in the order of the calls."""
    seen: list[Tensor] = []
    handles = [
        norm.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for norm in norms
    ]
    try:
        model(tokens)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def relative_changes(before: Sequence[Tensor], after: Sequence[Tensor]) -> list[float]:
    """Norm of each change over the norm before it; `before` are copies of what changes."""
    return [
        ((new.detach() - old).double().norm() / old.double().norm()).item()
        for old, new in zip(before, after, strict=True)
    ]
