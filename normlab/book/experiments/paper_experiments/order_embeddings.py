"""Does layer norm help a GRU that puts captions above their pictures in a partial order?"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.data.batches import shuffled_batches
from normlab.book.experiments.layer_norm.recurrent import Gru
from normlab.book.experiments.paper_experiments.captions import (
    TEMPLATES,
    CaptionedDigits,
    load_captioned_digits,
    vocabulary,
)
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit

Norm = Literal["none", "layer_norm"]


def order_violation(captions: Tensor, images: Tensor) -> Tensor:
    r"""How far each caption is from lying above each picture.

    .. math:: E(c, i) = \lVert \max(0, c - i) \rVert^2

    Shape:
        captions (N, D), images (M, D); returns (N, M).

    Conventions:
        0 if no coordinate of the caption exceeds that of the picture. What a caption does not
        say costs nothing; what the picture does not show does.

    Source:
        vendrov2016order, Eq. 2, with the caption above the picture.
    """
    return (captions[:, None] - images).clamp_min(0).square().sum(-1)


def ranking_loss(captions: Tensor, images: Tensor, margin: float) -> Tensor:
    """Mean over pairs of what others of the batch violate by less than the pair plus a margin.

    Args:
        captions: (N, D); row n belongs to row n of `images`.

    Source:
        vendrov2016order, the loss of its experiment on captions and images.
    """
    violation = order_violation(captions, images)
    right = violation.diagonal()
    wrong_image = (margin + right[:, None] - violation).clamp_min(0)
    wrong_caption = (margin + right - violation).clamp_min(0)
    off_diagonal = 1 - torch.eye(len(right), dtype=violation.dtype)
    return ((wrong_image + wrong_caption) * off_diagonal).sum() / len(right)


def ranks(violation: Tensor) -> Tensor:
    """Rank of the right column in each row of a square, from 1.

    Conventions:
        of columns that are equal to the right one, half come first: a network that tells no
        two columns apart has the rank of a guess.
    """
    right = violation.diagonal()[:, None]
    before = (violation < right).sum(1) + 0.5 * ((violation == right).sum(1) - 1)
    return 1 + before


class OrderEmbedding(nn.Module):
    """A GRU for captions and a perceptron for pictures, with one space of positive vectors."""

    def __init__(self, hidden: int, size: int, norm: Norm, *, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.words = nn.Embedding(len(vocabulary()) + 1, hidden)
            self.see = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, size))
        length = max(len(template.split()) for template in TEMPLATES)
        self.read = Gru(hidden, hidden, size, norm, seed=seed, steps=length)

    def forward(self, captions: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Captions (N, T) and pictures (M, 64) as vectors of length 1 without negative entries."""
        found = self.read(self.words(captions)), self.see(images)
        c, i = (nn.functional.normalize(vectors.abs(), dim=-1) for vectors in found)
        return c, i


@torch.no_grad()
def retrieve(model: OrderEmbedding, tested: CaptionedDigits) -> dict[str, float]:
    """Find the picture of each caption and the caption of each picture.

    Returns:
        for both directions the share of right answers among the first one and the first ten,
        and the mean rank of the right answer. Picture n has the caption of template n mod 4.
    """
    count = len(tested.images)
    chosen = tested.captions[torch.arange(count), torch.arange(count) % len(TEMPLATES)]
    violation = order_violation(*model(chosen, tested.images))
    found = {}
    for answer, matrix in (("caption", violation.T), ("image", violation)):
        rank = ranks(matrix)
        found[f"{answer}_first"] = rounded((rank <= 1).double().mean().item())
        found[f"{answer}_ten"] = rounded((rank <= 10).double().mean().item())
        found[f"{answer}_rank"] = rounded(rank.mean().item())
    return found


@experiment(norm=("none", "layer_norm"), lr=(1e-3, 3e-3, 1e-2, 3e-2), seed=range(5))
def order_embeddings(
    norm: Norm,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Steps = 400,
    every: PositiveInt = 25,
) -> dict[str, Any]:
    """Train a GRU of 48 units on captions and pictures of digits, 64 pairs at a time, by Adam.

    Returns:
        curve: mean rank among the 500 test digits, mean of both directions, after each `every`
            updates; a guess has 250.5.
        rank: its last entry.
        others: see :func:`retrieve`, after the last update.
    """
    trained, tested = load_captioned_digits(seed)
    model = OrderEmbedding(48, 32, norm, seed=seed)
    template = torch.Generator().manual_seed(seed)
    curve: list[float] = []

    def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
        chosen = torch.randint(len(TEMPLATES), (len(batch),), generator=template)
        captions, images = model(trained.captions[batch, chosen], trained.images[batch])
        return ranking_loss(captions, images, margin=0.05)

    def look(step: int) -> None:
        if step % every == 0:
            found = retrieve(model, tested)
            curve.append(rounded((found["caption_rank"] + found["image_rank"]) / 2))

    batches = shuffled_batches(len(trained.images), 64, seed=seed)
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    fit(model, adam, batches, steps, loss_of=loss_of, after_step=look)
    return {"curve": curve, "rank": curve[-1], **retrieve(model, tested)}
