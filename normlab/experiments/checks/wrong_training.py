"""What does a layer norm cost whose outputs are right and whose gradient is not?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm as torch_layer_norm

from normlab.checks import LAYER_NORM_MUTANTS
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import make_mlp
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, train_on_digits

RIGHT = "right"


@dataclass(frozen=True)
class Config:
    """A ReLU network on digits with a right or a wrong layer norm in every hidden layer."""

    #: "right" for torch's, or keys of `normlab.checks.LAYER_NORM_MUTANTS`
    layers: tuple[str, ...] = (RIGHT, "detached_statistics")
    lrs: tuple[Positive, ...] = (0.03, 0.1, 0.3, 1.0)  #: learning rates of SGD without momentum
    #: each gives a split, initial weights and an order of batches
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    widths: tuple[Count, ...] = (64, *[64] * 6, 10)  #: sizes of the MLP
    batch_size: Count = 64  #: samples in a batch
    steps: Count = 200  #: updates


class LayerNormBy(nn.LayerNorm):
    """Torch's module with another function of the same signature behind it."""

    def __init__(self, size: int, function: Callable[..., Tensor]):
        super().__init__(size)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Normalize; x and the result (\\*, size)."""
        y: Tensor = self.function(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return y


def make_network(widths: tuple[int, ...], layer: str, *, seed: int) -> nn.Sequential:
    """Build linear → layer norm → ReLU with He's initial weights; norms by :class:`LayerNormBy`."""
    model = make_mlp(widths, "layer_norm", seed=seed, init="he")
    function = torch_layer_norm if layer == RIGHT else LAYER_NORM_MUTANTS[layer]
    for i, size in enumerate(widths[1:-1]):
        model[3 * i + 1] = LayerNormBy(size, function)
    return model


def run_one(config: Config, layer: str, lr: float, seed: int) -> dict[str, float]:
    """Train one network.

    Measures:
        start_loss: on the test digits before the first update.
        accuracy: on the 500 test digits after the last; chance is 0.1.
    """
    data = load_digits_split(seed)
    model = make_network(config.widths, layer, seed=seed)
    start = evaluate(model, data.x_test, data.y_test).loss
    sgd = torch.optim.SGD(model.parameters(), lr=lr)
    train_on_digits(model, data, sgd, steps=config.steps, batch_size=config.batch_size, seed=seed)
    return {"start_loss": start, "accuracy": evaluate(model, data.x_test, data.y_test).accuracy}


run = Sweep(run_one, layer="layers", lr="lrs", seed="seeds")
