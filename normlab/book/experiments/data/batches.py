"""The order in which a training sees its samples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

Batches = Iterator[Tensor]


def shuffled_batches(count: int, batch_size: int, *, seed: int) -> Batches:
    """Yield index batches for ever, reshuffled each epoch; an incomplete last batch is dropped.

    Shape:
        yields (batch_size,) long indices.
    """
    if not 1 <= batch_size <= count:
        raise ValueError(f"batch_size: got {batch_size} for {count} samples; expected 1 to {count}")
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(count, generator=generator)
        yield from order[: count - count % batch_size].split(batch_size)


def class_batches(labels: Tensor, batch_size: int, *, classes_per_batch: int, seed: int) -> Batches:
    """Yield index batches for ever, each with samples of only `classes_per_batch` classes.

    The classes of a batch are drawn without replacement and each gives the same number of
    samples, drawn with replacement.

    Shape:
        yields (batch_size,) long indices.

    Raises:
        ValueError: `classes_per_batch` does not divide `batch_size` or exceeds the classes.
    """
    members = [torch.nonzero(labels == c).flatten() for c in labels.unique()]
    if not 1 <= classes_per_batch <= len(members) or batch_size % classes_per_batch:
        raise ValueError(
            f"classes_per_batch: got {classes_per_batch}; expected a divisor of batch_size "
            f"{batch_size}, at most {len(members)}"
        )
    generator = torch.Generator().manual_seed(seed)
    while True:
        chosen = torch.randperm(len(members), generator=generator)[:classes_per_batch]
        parts = []
        for c in chosen.tolist():
            draw = (batch_size // classes_per_batch,)
            parts.append(members[c][torch.randint(len(members[c]), draw, generator=generator)])
        yield torch.cat(parts)
