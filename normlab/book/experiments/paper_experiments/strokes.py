"""Does layer norm speed up an LSTM that predicts where a pen goes next?"""

from __future__ import annotations

import math

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.data.batches import shuffled_batches
from normlab.book.experiments.paper_experiments.glyphs import load_outlines
from normlab.book.experiments.paper_experiments.lstm import LstmNorm, make_lstm_cell
from normlab.book.experiments.rounding import rounded, window_means
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit

TEST_SIZE = 192


def mixture_loss(parameters: Tensor, target: Tensor) -> Tensor:
    """Mean negative log-likelihood of displacements under mixtures of bivariate normals.

    Args:
        parameters: for each component a log weight, two means, two log standard deviations and
            an unbounded number whose tanh is the correlation.

    Shape:
        parameters (\\*, 6 components), target (\\*, 2); returns a scalar.

    Source:
        graves2013generating, Section 4.1.
    """
    logit, mean_x, mean_y, log_sx, log_sy, rho = parameters.chunk(6, dim=-1)
    x = (target[..., :1] - mean_x) * (-log_sx).exp()
    y = (target[..., 1:] - mean_y) * (-log_sy).exp()
    rho = 0.95 * rho.tanh()  # a correlation near 1 has a density without bound
    rest = 1 - rho.square()
    z = (x.square() + y.square() - 2 * rho * x * y) / rest
    log_density = -0.5 * z - log_sx - log_sy - 0.5 * rest.log() - math.log(2 * math.pi)
    return -torch.logsumexp(logit.log_softmax(-1) + log_density, dim=-1).mean()


class PenModel(nn.Module):
    """An LSTM that reads displacements and predicts the next one as a mixture of normals.

    Shape:
        maps displacements (N, T, 2) to parameters (N, T, 6 components); entry t is predicted
        from the displacements before t.

    Source:
        graves2013generating, Section 4, with one layer instead of three, and without the text
        that his network is given to write.
    """

    def __init__(self, hidden: int, components: int, norm: LstmNorm, *, seed: int) -> None:
        super().__init__()
        self.cell = make_lstm_cell(2, hidden, norm, seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.output = nn.Linear(hidden, 6 * components)

    def forward(self, moves: Tensor) -> Tensor:
        """Predict every displacement from those before it."""
        state = self.cell.start(moves)
        outputs = []
        for t in range(moves.shape[1]):
            before = moves[:, t - 1] if t else torch.zeros_like(moves[:, 0])
            state = self.cell(before, state)
            outputs.append(self.output(state[0]))
        return torch.stack(outputs, dim=1)


def split_outlines(seed: int) -> tuple[Tensor, Tensor]:
    """Training and test trajectories of one shuffle."""
    moves = load_outlines()
    order = torch.randperm(len(moves), generator=torch.Generator().manual_seed(seed))
    return moves[order[:-TEST_SIZE]], moves[order[-TEST_SIZE:]]


@experiment(
    norm=("none", "sums", "sums with bias"), lr=(1e-3, 5e-3, 1e-2, 2e-2, 5e-2), seed=range(5)
)
def strokes(
    norm: LstmNorm,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Steps = 300,
    every: PositiveInt = 25,
) -> dict[str, list[float]]:
    """Train an LSTM of 64 units with 5 normals on outlines of letters, 8 at a time, by Adam.

    Returns:
        train_curve: training loss, mean of each window of `every` updates.
        test_curve: loss on the 192 test trajectories after each `every` updates.
    """
    x, tested = split_outlines(seed)
    model = PenModel(64, 5, norm, seed=seed)
    looks: list[float] = []

    def loss_of(model: nn.Module, moves: Tensor) -> Tensor:
        return mixture_loss(model(moves), moves)

    def look(step: int) -> None:
        if step % every == 0:
            with torch.no_grad():
                looks.append(rounded(loss_of(model, tested).item()))

    batches = (x[chosen] for chosen in shuffled_batches(len(x), 8, seed=seed))
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    losses = fit(model, adam, batches, steps, loss_of=loss_of, after_step=look)
    return {"train_curve": window_means(losses, every), "test_curve": looks}
