"""Endless batches for sequence models: reversal, sorting, and text of the standard library."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor

__all__ = [
    "SequenceBatches",
    "Task",
    "Text",
    "load_text",
    "reversal_batches",
    "sequence_batches",
    "sorting_batches",
    "text_batches",
]

Task = Literal["reversal", "sorting"]
SequenceBatches = Iterator[tuple[Tensor, Tensor]]


def _random_tokens(
    target: Callable[[Tensor], Tensor], vocabulary: int, length: int, batch_size: int, seed: int
) -> SequenceBatches:
    for name, value, least in (
        ("vocabulary", vocabulary, 2),
        ("length", length, 1),
        ("batch_size", batch_size, 1),
    ):
        if value < least:
            raise ValueError(f"{name}: got {value}; expected {least} or more")
    generator = torch.Generator().manual_seed(seed)

    def batches() -> SequenceBatches:
        while True:
            x = torch.randint(vocabulary, (batch_size, length), generator=generator)
            yield x, target(x)

    return batches()


def reversal_batches(
    *, vocabulary: int = 10, length: int = 12, batch_size: int = 32, seed: int
) -> SequenceBatches:
    """Yield random tokens and the same in reverse, a fresh batch each time.

    The best guess without reading the input is one token in `vocabulary`, a loss of
    ln `vocabulary`.

    Args:
        vocabulary: number of tokens.
        length: T.
        batch_size: N.
        seed: of the draws.

    Shape:
        yields two (N, T) long tensors.

    Raises:
        ValueError: a size is too small.

    Example:
        >>> x, y = next(reversal_batches(length=4, batch_size=1, seed=0))
        >>> x.tolist(), y.tolist()
        ([[4, 9, 3, 0]], [[0, 3, 9, 4]])
    """
    return _random_tokens(lambda x: x.flip(1), vocabulary, length, batch_size, seed)


def sorting_batches(
    *, vocabulary: int = 10, length: int = 12, batch_size: int = 32, seed: int
) -> SequenceBatches:
    """Yield random tokens and the same in ascending order, a fresh batch each time.

    Args:
        vocabulary: number of tokens.
        length: T.
        batch_size: N.
        seed: of the draws.

    Shape:
        yields two (N, T) long tensors.

    Raises:
        ValueError: a size is too small.

    Example:
        >>> x, y = next(sorting_batches(length=4, batch_size=1, seed=0))
        >>> x.tolist(), y.tolist()
        ([[4, 9, 3, 0]], [[0, 3, 4, 9]])
    """
    return _random_tokens(lambda x: x.sort(1).values, vocabulary, length, batch_size, seed)


def sequence_batches(
    task: Task, *, vocabulary: int = 10, length: int = 12, batch_size: int = 32, seed: int
) -> SequenceBatches:
    """Yield batches of the named task, "reversal" or "sorting".

    Raises:
        ValueError: the task is unknown, or a size is too small.
    """
    makers = {"reversal": reversal_batches, "sorting": sorting_batches}
    if task not in makers:
        raise ValueError(f"task: got {task!r}; expected 'reversal' or 'sorting'")
    return makers[task](vocabulary=vocabulary, length=length, batch_size=batch_size, seed=seed)


class Text(NamedTuple):
    """Characters as numbers.

    Attributes:
        tokens: (characters,) long.
        vocabulary: number of different characters.
        entropy: of one character, in nats; the loss of the best guess that reads nothing.
    """

    tokens: Tensor
    vocabulary: int
    entropy: float


@cache
def load_text(characters: int = 200_000) -> Text:
    """Read the help topics that come with Python, so that nothing is downloaded or stored.

    Args:
        characters: how many to take, from the start.

    Returns:
        The text as tokens; the numbers follow the order of the code points.

    Raises:
        ValueError: `characters` is below 2 or exceeds the text.

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

    Args:
        text: see :func:`load_text`.
        length: T, characters of a window.
        batch_size: N.
        seed: of the draws.

    Shape:
        yields two (N, T) long tensors.

    Raises:
        ValueError: `length` does not fit into the text.
    """
    last = len(text.tokens) - length
    if not 1 <= length < len(text.tokens):
        raise ValueError(f"length: got {length}; expected 1 to {len(text.tokens) - 1}")
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.arange(length + 1)

    def batches() -> SequenceBatches:
        while True:
            starts = torch.randint(last, (batch_size, 1), generator=generator)
            windows = text.tokens[starts + offsets]
            yield windows[:, :-1], windows[:, 1:]

    return batches()
