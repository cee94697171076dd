"""Endless batches for sequence models: reversal, sorting, and text of the standard library."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

Task = Literal["reversal", "sorting"]
SequenceBatches = Iterator[tuple[Tensor, Tensor]]


def sequence_batches(
    task: Task = "reversal",
    *,
    vocabulary: int = 10,
    length: int = 12,
    batch_size: int = 32,
    seed: int,
) -> SequenceBatches:
    """Yield random tokens and the same in reverse or in ascending order, fresh ones each time.

    The best guess of a reversed token without reading the input is one in `vocabulary`, a loss
    of ln `vocabulary`.

    Shape:
        yields two (N, T) long tensors.

    Example:
        >>> for task in ("reversal", "sorting"):
        ...     x, y = next(sequence_batches(task, length=4, batch_size=1, seed=0))
        ...     x.tolist(), y.tolist()
        ([[4, 9, 3, 0]], [[0, 3, 9, 4]])
        ([[4, 9, 3, 0]], [[0, 3, 4, 9]])
    """
    if task not in get_args(Task):
        raise ValueError(f"task: got {task!r}; expected 'reversal' or 'sorting'")
    sizes = (("vocabulary", vocabulary, 2), ("length", length, 1), ("batch_size", batch_size, 1))
    for name, value, least in sizes:
        if value < least:
            raise ValueError(f"{name}: got {value}; expected {least} or more")
    generator = torch.Generator().manual_seed(seed)
    size = (batch_size, length)
    draws = (torch.randint(vocabulary, size, generator=generator) for _ in itertools.count())
    return ((x, x.flip(1) if task == "reversal" else x.sort(1).values) for x in draws)


class Text(NamedTuple):
    """Characters as numbers."""

    tokens: Tensor  #: (characters,) long
    vocabulary: int  #: number of different characters
    entropy: float  #: of one character, in nats; the loss of the best guess that reads nothing


@cache
def load_text(characters: int = 200_000) -> Text:
    """Read the help topics that come with Python, so that nothing is downloaded or stored.

    Returns:
        The text as tokens; the numbers follow the order of the code points.

    Conventions:
        the text changes a little from one version of Python to the next.

    Source:
        `pydoc_data.topics` of the standard library (PSF license).
    """
    from pydoc_data import topics  # type: ignore[import-untyped, unused-ignore]

    text = "".join(topics.topics[name] for name in sorted(topics.topics))
    if not 2 <= characters <= len(text):
        raise ValueError(f"characters: got {characters}; expected 2 to {len(text)}")
    text = text[:characters]
    counts = Counter(text)
    numbers = {character: i for i, character in enumerate(sorted(counts))}
    entropy = -sum(c / characters * math.log(c / characters) for c in counts.values())
    return Text(torch.tensor([numbers[c] for c in text]), len(counts), entropy)


def text_batches(
    text: Text, *, length: int = 32, batch_size: int = 16, seed: int
) -> SequenceBatches:
    """Yield random windows of a text and the same windows one character later.

    Shape:
        yields two (N, T) long tensors.
    """
    last = len(text.tokens) - length
    if not 1 <= length < len(text.tokens):
        raise ValueError(f"length: got {length}; expected 1 to {len(text.tokens) - 1}")
    generator = torch.Generator().manual_seed(seed)
    offsets, size = torch.arange(length + 1), (batch_size, 1)
    starts = (torch.randint(last, size, generator=generator) for _ in itertools.count())
    windows = (text.tokens[start + offsets] for start in starts)
    return ((window[:, :-1], window[:, 1:]) for window in windows)
