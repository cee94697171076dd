"""Captions for scikit-learn's digits, made from what can be measured in the picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from normlab.book.experiments.data.digits import load_digits_split

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
INK = ("pale", "gray", "bold")
WIDTH = ("narrow", "even", "wide")
SLANT = ("falling", "upright", "rising")
TEMPLATES = (
    "a {ink} {name} that is {width} and {slant}",
    "{width} and {slant} is this {ink} {name}",
    "here is a {name} , {slant} , {width} and {ink}",
    "the {name} looks {slant} and {ink} but also {width}",
)


@dataclass(frozen=True)
class CaptionedDigits:
    """Pictures and the captions of each, one for every template."""

    images: Tensor  #: (n, 64) pixels between 0 and 1
    captions: Tensor  #: (n, 4, T) word numbers, with zeros in front of a short caption
    texts: tuple[tuple[str, ...], ...]  #: the captions as texts, four for each picture


def measure(images: Tensor) -> Tensor:
    """Ink, width and slant of pictures.

    Shape:
        (n, 64) pixels to (n, 3): mean pixel; standard deviation of the column of a dot of ink;
        covariance of its column and its height, divided by the variance of the height.
    """
    x = images.view(-1, 8, 8).double()
    share = x / x.sum((1, 2), keepdim=True)
    at = torch.arange(8, dtype=torch.float64)
    columns, heights = share.sum(1), share.sum(2)  # (n, 8) each
    column = at - (columns @ at)[:, None]
    height = (heights @ at)[:, None] - at
    covariance = torch.einsum("nij,ni,nj->n", share, height, column)
    variance = (heights * height.square()).sum(1)
    width = (columns * column.square()).sum(1).sqrt()
    return torch.stack([x.mean((1, 2)), width, covariance / variance], dim=1)


@cache
def _thirds() -> Tensor:
    """What divides each measure of all digits into thirds, (2, 3)."""
    data = load_digits_split(0)
    values = measure(torch.cat([data.x_train, data.x_test]))
    return values.quantile(torch.tensor([1 / 3, 2 / 3], dtype=torch.float64), dim=0)


def describe(images: Tensor, labels: Tensor) -> tuple[tuple[str, ...], ...]:
    """Write every template for every picture."""
    thirds = (measure(images)[:, None] > _thirds()).sum(1)
    rows = zip(thirds.tolist(), labels.tolist(), strict=True)
    return tuple(
        tuple(
            template.format(ink=INK[i], width=WIDTH[w], slant=SLANT[s], name=NAMES[label])
            for template in TEMPLATES
        )
        for (i, w, s), label in rows
    )


@cache
def vocabulary() -> dict[str, int]:
    """Number of each word, from 1; 0 is the empty place in front of a short caption."""
    words = " ".join((*TEMPLATES, *NAMES, *INK, *WIDTH, *SLANT)).split()
    kept = sorted({word for word in words if "{" not in word})
    return {word: number for number, word in enumerate(kept, 1)}


def encode(texts: tuple[tuple[str, ...], ...]) -> Tensor:
    """Texts as word numbers, (n, 4, T), filled up with zeros in front."""
    length = max(len(template.split()) for template in TEMPLATES)
    words = vocabulary()

    def row(text: str) -> list[int]:
        numbers = [words[word] for word in text.split()]
        return [0] * (length - len(numbers)) + numbers

    return torch.tensor([[row(text) for text in each] for each in texts])


def load_captioned_digits(seed: int) -> tuple[CaptionedDigits, CaptionedDigits]:
    """The training and the test part of one split of the digits, with captions."""
    data = load_digits_split(seed)
    parts = []
    for images, labels in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        texts = describe(images, labels)
        parts.append(CaptionedDigits(images, encode(texts), texts))
    return parts[0], parts[1]
