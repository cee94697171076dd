"""What does a layer norm cost whose outputs are right and whose gradient is not?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.checks import LAYER_NORM_MUTANTS
from normlab.layers import LayerNorm, layer_norm

RIGHT = "right"


class LayerNormBy(LayerNorm):
    """The package's module with another function of the same signature behind it."""

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
    function = layer_norm if layer == RIGHT else LAYER_NORM_MUTANTS[layer]
    for i, size in enumerate(widths[1:-1]):
        model[3 * i + 1] = LayerNormBy(size, function)
    return model


@experiment(layer=(RIGHT, "detached_statistics"), lr=(0.03, 0.1, 0.3, 1.0), seed=range(5))
def wrong_training(
    layer: str, lr: PositiveFloat, seed: Seed, *, steps: Steps = 200
) -> dict[str, float]:
    """Train a ReLU network on digits with a right or a wrong layer norm in every hidden layer.

    Args:
        layer: "right" for the package's, or a key of `normlab.checks.LAYER_NORM_MUTANTS`.

    Returns:
        start_loss: on the test digits before the first update.
        accuracy: on the 500 test digits after the last; chance is 0.1.
    """
    data = load_digits_split(seed)
    model = make_network((64, *[64] * 6, 10), layer, seed=seed)
    start = evaluate(model, data.x_test, data.y_test).loss
    sgd = torch.optim.SGD(model.parameters(), lr=lr)
    fit(model, sgd, data.batches(64, seed), steps)
    return {"start_loss": start, "accuracy": evaluate(model, data.x_test, data.y_test).accuracy}
