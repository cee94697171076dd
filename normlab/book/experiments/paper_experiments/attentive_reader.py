"""Does a norm in the LSTMs help a reader that answers questions by attention?"""

from __future__ import annotations

import itertools
from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.book.experiments.layer_norm.recurrent import StepNorm, make_step_norm
from normlab.book.experiments.paper_experiments import cloze
from normlab.book.experiments.rounding import rounded, window_means
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit
from normlab.layers import BatchNorm1d

Group = Literal["none", "layer_norm", "batch_norm", "batch norm everywhere"]
# the norm of the LSTMs, whether batch norm is in the attention as well, and the gain at the start
GROUPS: dict[Group, tuple[StepNorm, bool, float]] = {
    "none": ("none", False, 1.0),
    "layer_norm": ("layer_norm", False, 1.0),
    "batch_norm": ("batch_norm", False, 0.1),
    "batch norm everywhere": ("batch_norm", True, 0.1),
}


class Lstm(nn.Module):
    r"""An LSTM with a norm on its two products and on its cell.

    .. math:: (f, i, o, g) &= N(U h) + N(W x + b) \\
              c &\leftarrow \sigma(f) \odot c + \sigma(i) \odot \tanh(g) \\
              h &\leftarrow \sigma(o) \odot \tanh(N(c))

    Args:
        steps: time steps that "batch_norm" keeps statistics for.

    Shape:
        input (N, T, inputs); returns the states h, (N, T, hidden).

    Source:
        ba2016layer, supplement, and cooijmans2017recurrent, Section 3; the bias inside the norm
        is that of kiros2016code.
    """

    def __init__(self, inputs: int, hidden: int, norm: StepNorm, steps: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.x_sums = nn.Linear(inputs, 4 * hidden)
        self.h_sums = nn.Linear(hidden, 4 * hidden, bias=False)
        self.x_norm = make_step_norm(norm, 4 * hidden, steps)
        self.h_norm = make_step_norm(norm, 4 * hidden, steps)
        self.cell_norm = make_step_norm(norm, hidden, steps)

    def forward(self, input: Tensor) -> Tensor:
        """Read the sequence and return the state after each step."""
        h = c = input.new_zeros(len(input), self.hidden)
        states = []
        for step, x in enumerate(input.unbind(1)):
            sums = self.h_norm(self.h_sums(h), step) + self.x_norm(self.x_sums(x), step)
            f, i, o, g = sums.chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * self.cell_norm(c, step).tanh()
            states.append(h)
        return torch.stack(states, dim=1)


class Reader(nn.Module):
    r"""Two LSTMs read passage and question; attention chooses where in the passage to look.

    .. math:: m_t &= \tanh(N(A y_t) + N(B u)) \\
              r &= \sum_t \mathrm{softmax}_t(w \cdot m_t) \, y_t \\
              g &= \tanh(N(C r) + N(D u))

    with y the states of the passage and u the last state of the question; N is the identity
    unless `everywhere`.

    Args:
        everywhere: whether batch norm stands in the attention and before the output as well.

    Shape:
        passage (N, 9), question (N, 3); returns logits of the entities, (N, 6).

    Source:
        hermann2015teaching, Section 3.2, with LSTMs in one direction.
    """

    def __init__(self, hidden: int, norm: StepNorm, *, everywhere: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(len(cloze.WORDS), hidden)
        self.passage = Lstm(hidden, hidden, norm, 3 * cloze.SENTENCES)
        self.question = Lstm(hidden, hidden, norm, 3)
        self.products = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(4))
        # Positions of the passage are samples to the norms of the attention.
        kinds = [BatchNorm1d(hidden) if everywhere else nn.Identity() for _ in range(4)]
        self.norms = nn.ModuleList(kinds)
        self.attend = nn.Linear(hidden, 1, bias=False)
        self.output = nn.Linear(hidden, cloze.ENTITIES)

    def _sum(self, first: int, a: Tensor, b: Tensor) -> Tensor:
        found = []
        for number, x in ((first, a), (first + 1, b)):
            product = self.products[number](x)
            found.append(self.norms[number](product.flatten(0, -2)).view_as(product))
        return (found[0] + found[1]).tanh()

    def forward(self, passage: Tensor, question: Tensor) -> Tensor:
        """Answer the questions."""
        y = self.passage(self.words(passage))
        u = self.question(self.words(question))[:, -1]
        share = self.attend(self._sum(0, y, u[:, None])).softmax(dim=1)  # (N, 9, 1)
        return self.output(self._sum(2, (share * y).sum(1), u))


@torch.no_grad()
def make_reader(group: Group, hidden: int, *, seed: int) -> Reader:
    """Build a :class:`Reader` whose initial matrices depend on `seed` alone.

    Conventions:
        the weight of batch norm starts at 0.1, that of layer norm at 1.

    Source:
        the weights: cooijmans2017recurrent and ba2016layer, Section 6.2.
    """
    norm, everywhere, gain = GROUPS[group]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        reader = Reader(hidden, norm, everywhere=everywhere)
    for name, parameter in reader.named_parameters():
        if "norm" in name and name.endswith("weight"):
            parameter.fill_(gain)
    return reader


def answer_loss(reader: nn.Module, batch: cloze.Cloze) -> Tensor:
    """Mean cross-entropy of the answers, in nats."""
    return cross_entropy(reader(batch.passage, batch.question), batch.answer)


@experiment(group=GROUPS, lr=(3e-3, 1e-2, 3e-2, 1e-1), seed=range(5))
def attentive_reader(
    group: Group,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Steps = 300,
    every: PositiveInt = 25,
) -> dict[str, Any]:
    """Train a reader of 32 units on questions that are drawn anew for each batch, by Adam.

    Args:
        group: norm of the LSTMs; "batch norm everywhere" is in the attention as well.

    Returns:
        errors: share of wrong answers to the test questions in eval mode, after each `every`
            updates.
        error: its last entry.
        losses: training loss, mean of each window of `every` updates.
    """
    reader = make_reader(group, 32, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    tested = cloze.draw_cloze(500, generator)
    errors: list[float] = []

    @torch.no_grad()
    def look(step: int) -> None:
        if step % every == 0:
            reader.eval()
            found = reader(tested.passage, tested.question).argmax(-1)
            reader.train()
            errors.append(rounded((found != tested.answer).double().mean().item()))

    batches = (cloze.draw_cloze(32, generator) for _ in itertools.count())
    adam = torch.optim.Adam(reader.parameters(), lr=lr)
    losses = fit(reader, adam, batches, steps, loss_of=answer_loss, after_step=look)
    return {"errors": errors, "error": errors[-1], "losses": window_means(losses, every)}
