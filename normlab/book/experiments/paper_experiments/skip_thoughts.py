"""Does layer norm help a sentence encoder that is trained to predict the neighbors?"""

from __future__ import annotations

import itertools
from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from normlab.book.experiments.layer_norm.recurrent import Gru
from normlab.book.experiments.paper_experiments.stories import LENGTH, WORDS, Stories, draw_stories
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit

Norm = Literal["none", "layer_norm"]


class SkipThoughts(nn.Module):
    """A GRU encodes the middle sentence of a story; two small decoders write the other two.

    A decoder sees the encoding, the word before, and the number of the place, and guesses the
    word. It has no memory, so what the other words are has to come from the encoding.

    Source:
        kiros2015skip, Section 2, where the decoders are GRUs.
    """

    def __init__(self, hidden: int, norm: Norm, *, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.words = nn.Embedding(len(WORDS), hidden)
            self.before = nn.Embedding(2 * LENGTH * len(WORDS), hidden)
            self.from_encoding = nn.Linear(hidden, 2 * hidden)
            self.output = nn.Linear(hidden, len(WORDS))
        self.encoder = Gru(hidden, hidden, hidden, norm, seed=seed, steps=LENGTH)

    def encode(self, sentences: Tensor) -> Tensor:
        """Sentences (N, T) as vectors (N, hidden)."""
        return self.encoder(self.words(sentences))

    def forward(self, sentences: Tensor) -> Tensor:
        """Logits of the words of the neighbors, (N, 2, T, words), from stories (N, 3, T)."""
        thought = self.from_encoding(self.encode(sentences[:, 1])).unflatten(-1, (2, 1, -1))
        before = pad(sentences[:, ::2, :-1], (1, 0))  # (N, 2, T): the words before
        place = torch.arange(2 * LENGTH).view(2, LENGTH) * len(WORDS)
        return self.output((thought + self.before(before + place)).relu())


def neighbor_loss(model: nn.Module, sentences: Tensor) -> Tensor:
    """Cross-entropy of the words of both neighbors of stories (N, 3, T), in nats per sentence."""
    target = sentences[:, ::2]
    return LENGTH * cross_entropy(model(sentences).flatten(0, 2), target.flatten())


def fit_linear(x: Tensor, y: Tensor, penalty: float = 1e-3) -> Tensor:
    """Ridge regression on standardized features, with an intercept.

    Args:
        x: (n, D), whose first half is fitted.
        y: (n, K) targets.
        penalty: weight of the squared coefficients against the mean squared error.

    Returns:
        predictions for the second half, (n - n // 2, K).
    """
    half = len(x) // 2
    x, y = x.double(), y.double()
    center, size = x[:half].mean(0), x[:half].std(0) + 1e-6
    x = (x - center) / size
    mean = y[:half].mean(0)
    gram = x[:half].T @ x[:half] / half + penalty * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(gram, x[:half].T @ (y[:half] - mean) / half)
    return x[half:] @ weights + mean


@torch.no_grad()
def probe(model: SkipThoughts, stories: Stories) -> float:
    """Fit a linear model on frozen encodings of the middle sentences and test it on others.

    Returns:
        correlation of the predicted with the true relatedness of two sentences, the number of
        person, place and mood that they share, from the difference and the product of their
        encodings.
    """
    code = model.encode(stories.sentences[:, 1])
    facts = torch.stack([stories.person, stories.place, stories.moods[:, 1]], dim=1)
    first, second = code[::2], code[1::2]
    shared = (facts[::2] == facts[1::2]).double().sum(1)
    pairs = torch.cat([(first - second).abs(), first * second], dim=1)
    guess = fit_linear(pairs, shared[:, None])[:, 0]
    right = torch.stack([guess, shared[len(shared) // 2 :]])
    return rounded(right.corrcoef()[0, 1].nan_to_num().item())


@experiment(norm=("none", "layer_norm"), lr=(3e-3, 1e-2, 3e-2, 1e-1), seed=range(5))
def skip_thoughts(
    norm: Norm,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Steps = 300,
    every: PositiveInt = 25,
    tested: PositiveInt = 2000,
) -> dict[str, Any]:
    """Train an encoder of 32 units on stories that are drawn anew for each batch of 64, by Adam.

    Args:
        tested: stories that loss and probe are measured on.

    Returns:
        losses: nats per sentence on the test stories, before training and after each `every`
            updates.
        loss: its last entry.
        related: of :func:`probe`, as often.
    """
    model = SkipThoughts(32, norm, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    stories = draw_stories(tested, generator)
    looks: list[dict[str, float]] = []

    @torch.no_grad()
    def look(step: int) -> None:
        if step % every == 0:
            loss = rounded(neighbor_loss(model, stories.sentences).item())
            looks.append({"losses": loss, "related": probe(model, stories)})

    look(0)
    batches = (draw_stories(64, generator).sentences for _ in itertools.count())
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    fit(model, adam, batches, steps, loss_of=neighbor_loss, after_step=look)
    curves = {name: [each[name] for each in looks] for name in looks[0]}
    return {**curves, "loss": curves["losses"][-1]}
