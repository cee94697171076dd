"""A network whose hidden weights count by their direction only, and its training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import FeatureNorm
from normlab.book.experiments.training import fit
from normlab.book.proofs.invariances import find_linear_norm

WIDTHS = (64, 32, 32, 10)  # of the network that the experiments train


def _bare_norm(name: FeatureNorm) -> Callable[[Tensor], Tensor]:
    """Normalize (N, C) with eps = 0, no weight and no bias; "none" changes nothing."""
    if name == "none":
        return lambda a: a
    apply = find_linear_norm(name).norm
    assert apply is not None
    return lambda a: apply(a[:, :, None], 0.0)[:, :, 0]


class InvariantMLP(nn.Module):
    r"""Linear → norm → ReLU layers without bias, without affine parameters and with eps = 0.

    .. math:: h_{l+1} = \mathrm{ReLU}(\mathrm{Norm}(W_l h_l)), \qquad
              \text{logits} = V h_L + b

    With "none" in place of the norm it is the control: the same network, not invariant.
    `start_scale` multiplies the initial hidden weights.

    Shape:
        maps (N, widths[0]) to (N, widths[-1]), in float64.
    """

    def __init__(
        self, widths: Sequence[int], norm: FeatureNorm, *, seed: int, start_scale: float = 1.0
    ) -> None:
        super().__init__()
        names = get_args(FeatureNorm)
        if norm not in names:
            raise ValueError(f"norm: got {norm!r}; expected one of {', '.join(names)}")
        if len(widths) < 3:
            raise ValueError(f"widths: got {tuple(widths)}; expected at least one hidden layer")
        generator = torch.Generator().manual_seed(seed)

        def draw(fan_in: int, fan_out: int, scale: float = 1.0) -> nn.Parameter:
            weight = torch.randn(fan_out, fan_in, generator=generator, dtype=torch.float64)
            return nn.Parameter(scale * weight / fan_in**0.5)

        self.norm = _bare_norm(norm)
        self.hidden = nn.ParameterList([draw(a, b, start_scale) for a, b in pairwise(widths[:-1])])
        self.output = draw(widths[-2], widths[-1])
        self.output_bias = nn.Parameter(torch.zeros(widths[-1], dtype=torch.float64))

    def forward(self, input: Tensor) -> Tensor:
        """Compute the logits."""
        h = input  # (N, widths[0])
        for weight in self.hidden:
            h = self.norm(h @ weight.T).relu()  # (N, width of this layer)
        return h @ self.output.T + self.output_bias  # (N, widths[-1])


def turned_by(before: Tensor, after: Tensor) -> float:
    """Angle in radians between two tensors of one shape."""
    # the chord between the two directions, exact for small angles where acos is not
    chord = float((after / after.norm() - before / before.norm()).norm())
    return 2 * math.asin(min(chord / 2, 1.0))


@dataclass(frozen=True)
class TrainedRun:
    """What a training of one network left behind."""

    losses: tuple[float, ...]  #: training loss before each step
    #: of the first hidden matrix, before the first and after each step
    squared_norms: tuple[float, ...]
    squared_gradients: tuple[float, ...]  #: of its gradient, for each step
    rotations: tuple[float, ...]  #: angle in radians by which each step turned the matrix
    norm_cosine: float  #: largest |cos| of the angle between a hidden matrix and its gradient
    row_mean_drift: float  #: how far the mean row of the first matrix moved, over its first length
    last_lr: float  #: learning rate of the hidden layers in the last step

    @property
    def grows(self) -> bool:
        """Whether every step made the matrix longer."""
        return all(b > a for a, b in pairwise(self.squared_norms))

    def pythagoras_error(self, *, lr: float) -> float:
        """Largest relative error of ‖W'‖² - ‖W‖² = lr² ‖g‖² over all steps at one rate."""
        growth = (b - a for a, b in pairwise(self.squared_norms))
        predicted = (lr**2 * g for g in self.squared_gradients)
        return max(abs(d / p - 1) for d, p in zip(growth, predicted, strict=True))


def train_once(
    widths: Sequence[int],
    norm: FeatureNorm,
    *,
    seed: int,
    lr: float,
    steps: int,
    batch_size: int = 128,
    weight_decay: float = 0.0,
    start_scale: float = 1.0,
    lr_growth: Callable[[int], float] = lambda step: 1.0,
    optimizer: Literal["sgd", "adam"] = "sgd",
    adam_eps: float = 1e-8,
) -> TrainedRun:
    """Train on the digits and follow the first hidden matrix.

    Under SGD, without momentum, the hidden layers follow W ← (1 - ηλ) W - η g, where η is `lr`
    times `lr_growth` of the step, counted from 0, and λ is `weight_decay`; `adam_eps` has the units
    of the gradient. The output layer learns at 0.1 and is never decayed: it is not invariant.
    """
    data = load_digits_split(seed)
    model = InvariantMLP(widths, norm, seed=seed, start_scale=start_scale)
    groups: list[dict[str, Any]] = [
        {"params": list(model.hidden), "lr": lr * lr_growth(0), "weight_decay": weight_decay},
        {"params": [model.output, model.output_bias], "lr": 0.1},
    ]
    make: Any = torch.optim.SGD
    if optimizer == "adam":
        make, groups[0]["eps"] = torch.optim.Adam, adam_eps
    stepper = make(groups, lr=lr)
    start = [w.detach().clone() for w in model.hidden]
    before = start
    squared_norms = [float(start[0].square().sum())]
    squared_gradients, rotations = [], []
    cosine, last_lr = 0.0, lr

    def follow(step: int) -> None:
        nonlocal before, cosine, last_lr
        after = [w.detach().clone() for w in model.hidden]
        gradients: list[Any] = [w.grad for w in model.hidden]
        for old, gradient in zip(before, gradients, strict=True):
            if float(gradient.norm()) > 0:
                inner = (old * gradient).sum() / (old.norm() * gradient.norm())
                cosine = max(cosine, abs(float(inner)))
        squared_norms.append(float(after[0].square().sum()))
        squared_gradients.append(float(gradients[0].square().sum()))
        rotations.append(turned_by(before[0], after[0]))
        before = after
        last_lr = stepper.param_groups[0]["lr"]
        stepper.param_groups[0]["lr"] = lr * lr_growth(step)

    batches = ((x.double(), y) for x, y in data.batches(batch_size, seed))
    losses = fit(model, stepper, batches, steps, after_step=follow)
    mean_row = start[0].mean(0)
    return TrainedRun(
        losses=tuple(losses),
        squared_norms=tuple(squared_norms),
        squared_gradients=tuple(squared_gradients),
        rotations=tuple(rotations),
        norm_cosine=cosine,
        row_mean_drift=float((before[0].mean(0) - mean_row).norm() / mean_row.norm()),
        last_lr=last_lr,
    )
