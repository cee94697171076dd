"""What changes when a trained model moves to a library with other defaults?"""

from __future__ import annotations

import itertools

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import fit


def make_network(features: int, width: int, eps: float, momentum: float) -> nn.Sequential:
    """Linear layer without a bias, batch norm, ReLU and one output."""
    return nn.Sequential(
        nn.Linear(features, width, bias=False),  # batch norm would subtract a bias
        nn.BatchNorm1d(width, eps=eps, momentum=momentum),
        nn.ReLU(),
        nn.Linear(width, 1),
    )


def squared_error(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean over a batch."""
    x, y = batch
    loss: Tensor = (model(x) - y).square().mean()
    return loss


def train(model: nn.Module, inputs: Tensor, targets: Tensor, epochs: int) -> None:
    """Adam at a rate of 0.01 on the squared error, in batches of 64, in place."""
    batches = list(zip(inputs.split(64), targets.split(64), strict=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    steps = epochs * len(batches)
    fit(model, optimizer, itertools.cycle(batches), steps, loss_of=squared_error)


@experiment(seed=range(5))
def moved_model(
    seed: Seed,
    *,
    eps: PositiveFloat = 1e-3,
    momentum: PositiveFloat = 0.01,
    epochs: PositiveInt = 150,
) -> dict[str, float]:
    """Train with eps and momentum of another library, load the state dict with torch's, compare.

    The data are rows of small numbers, labeled by the sign of the sum of their first three.

    Args:
        eps: of the batch norm of the model that is trained; Keras' default.
        momentum: weight of its new batch; Keras' 0.99 of the old average.
        epochs: of batches of 64.

    Returns:
        keys: of the state dict that did not fit.
        size: rms of the trained model's outputs in evaluation.
        changed: rms of what torch's defaults change in them.
        mended: the same with the right eps set.
        accuracy_before, accuracy_after: on the training set, of the trained and the moved model.
        buffer_ratio: running variance of the moved model beside the other one's, mean over units,
            after eight batches of larger inputs.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (512, 16)
    inputs = 0.02 * torch.randn(shape, generator=generator)
    targets = inputs[:, :3].sum(1, keepdim=True).sign()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make_network(16, 32, eps, momentum)
        moved = make_network(16, 32, eps=1e-5, momentum=0.1)
        same_eps = make_network(16, 32, eps, momentum=0.1)
    train(model, inputs, targets, epochs)
    keys = moved.load_state_dict(model.state_dict(), strict=False)
    same_eps.load_state_dict(model.state_dict())
    with torch.no_grad():
        right, wrong = model.eval()(inputs), moved.eval()(inputs)
        mended = same_eps.eval()(inputs)
        for x in (5.0 * inputs).split(64):
            model.train()(x), moved.train()(x)
    ours, theirs = (net.state_dict()["1.running_var"] for net in (model, moved))
    return {
        "keys": len(keys.missing_keys) + len(keys.unexpected_keys),
        "size": _rms(right),
        "changed": _rms(wrong - right),
        "mended": _rms(mended - right),
        "accuracy_before": (right.sign() == targets).float().mean().item(),
        "accuracy_after": (wrong.sign() == targets).float().mean().item(),
        "buffer_ratio": (theirs / ours).mean().item(),
    }


def _rms(x: Tensor) -> float:
    return x.square().mean().sqrt().item()
