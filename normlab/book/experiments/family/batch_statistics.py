"""How far do the mean and the spread of a few images lie from those of all?"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.family.small_batches import CHANNELS, make_network


@torch.no_grad()
def draw_statistics(
    sizes: Sequence[int], *, draws: int = 100, channel: int = 0, seed: int = 0
) -> dict[int, tuple[list[float], list[float]]]:
    """Take one channel behind the last convolution of a fresh network, in many small batches.

    Each of its 64 channels has one value for an image.

    Returns:
        size -> offsets of the mean, and ratios of the spread, one for each batch. The offset is
        divided by the spread of all training digits, and so is the spread of the batch.
    """
    if min(sizes) < 2:
        raise ValueError(f"sizes: got {min(sizes)}; expected 2 or more, one image has no spread")
    data = load_digits_split(seed).as_images()
    network = make_network("none", CHANNELS, part_size=2, seed=seed)
    last = max(i for i, m in enumerate(network) if isinstance(m, torch.nn.Conv2d))
    values = network[: last + 1](data.x_train)[:, channel].flatten().double()  # (1297,)
    spread, mean = torch.std_mean(values, correction=0)
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for size in sizes:
        drawn = torch.randint(len(values), (draws, size), generator=generator)
        spreads, means = torch.std_mean(values[drawn], 1, correction=0)
        found[size] = (((means - mean) / spread).tolist(), (spreads / spread).tolist())
    return found
