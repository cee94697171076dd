"""Recurrent networks whose norm is chosen by name; one seed gives all the same weights."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from normlab.layers import BatchNorm1d, LayerNorm

StepNorm = Literal["none", "layer_norm", "batch_norm"]
Beyond = Literal["raise", "reuse"]


class MissingStatisticsError(IndexError):
    """A time step for which no batch statistics were ever collected."""


class PerStepBatchNorm(nn.Module):
    """BatchNorm for sequences: own running statistics for each time step.

    Args:
        steps: number of time steps that have statistics, T.
        beyond: at step T and later "raise", or "reuse" the statistics of the last step.

    Conventions:
        weight and bias are shared by all steps, as the cell's other parameters are.

    Source:
        cooijmans2017recurrent, Section 3: statistics per time step, the last ones reused for
        longer sequences.
    """

    def __init__(self, num_features: int, steps: int, *, beyond: Beyond = "raise") -> None:
        super().__init__()
        self.beyond = beyond
        self.norms = nn.ModuleList(BatchNorm1d(num_features, affine=False) for _ in range(steps))
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))

    def forward(self, input: Tensor, step: int) -> Tensor:
        """Normalize (N, C) with the statistics of `step`."""
        trained = len(self.norms)
        if step >= trained and self.beyond == "raise":
            raise MissingStatisticsError(
                f"step: got {step}; statistics exist for steps 0 to {trained - 1}. Train on "
                "longer sequences, or reuse the last step's with beyond='reuse'"
            )
        y: Tensor = self.norms[min(step, trained - 1)](input)
        return y * self.weight + self.bias


class _EveryStep(nn.Module):
    """A norm that does not look at the time step."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, input: Tensor, step: int) -> Tensor:
        y: Tensor = self.norm(input)
        return y


def make_step_norm(
    name: StepNorm, num_features: int, steps: int, beyond: Beyond = "raise"
) -> nn.Module:
    """Build a norm that is called as `norm(x, step)`; only "batch_norm" looks at the step."""
    if name == "none":
        return _EveryStep(nn.Identity())
    if name == "layer_norm":
        return _EveryStep(LayerNorm(num_features))
    if name == "batch_norm":
        return PerStepBatchNorm(num_features, steps, beyond=beyond)
    raise ValueError(f"norm: got {name!r}; expected 'none', 'layer_norm' or 'batch_norm'")


class Gru(nn.Module):
    r"""A GRU with a norm on each of its four products and a linear output after the last step.

    .. math:: (z, r) &= \sigma(N(U_g h) + N(W_g x + b_g)) \\
              c &= \tanh(r \odot N(U_c h) + N(W_c x + b_c)) \\
              h &\leftarrow (1 - z) \odot h + z \odot c

    Args:
        steps: time steps that "batch_norm" keeps statistics for.
        beyond: what it does at later steps; see :class:`PerStepBatchNorm`.

    Shape:
        input (N, T, inputs); returns (N, outputs).

    Conventions:
        the bias stands inside the norm, so that the length of `x` is not lost with it.

    Source:
        ba2016layer, supplement, GRU equations; the bias inside the norm is ours.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        norm: StepNorm = "none",
        *,
        seed: int,
        steps: int,
        beyond: Beyond = "raise",
    ) -> None:
        super().__init__()
        self.hidden = hidden
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.x_gates = nn.Linear(inputs, 2 * hidden)
            self.h_gates = nn.Linear(hidden, 2 * hidden, bias=False)
            self.x_candidate = nn.Linear(inputs, hidden)
            self.h_candidate = nn.Linear(hidden, hidden, bias=False)
            self.output = nn.Linear(hidden, outputs)
        products = {"x_gates": 2, "h_gates": 2, "x_candidate": 1, "h_candidate": 1}
        self.norms = nn.ModuleDict(
            {name: make_step_norm(norm, n * hidden, steps, beyond) for name, n in products.items()}
        )

    def forward(self, input: Tensor) -> Tensor:
        """Read the sequence and return the output after its last step."""
        h = input.new_zeros(len(input), self.hidden)
        for step, x in enumerate(input.unbind(1)):
            gates = self.norms["x_gates"](self.x_gates(x), step)
            gates = gates + self.norms["h_gates"](self.h_gates(h), step)
            z, r = gates.sigmoid().chunk(2, dim=-1)
            recurrent = self.norms["h_candidate"](self.h_candidate(h), step)
            candidate = r * recurrent + self.norms["x_candidate"](self.x_candidate(x), step)
            h = (1 - z) * h + z * candidate.tanh()
        y: Tensor = self.output(h)
        return y
