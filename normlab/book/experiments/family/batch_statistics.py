"""What do a few images say: of the mean and the spread of all, and to the layers in front?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.family.small_batches import CHANNELS, make_network


def _find_last_convolution(network: nn.Sequential) -> int:
    return max(i for i, m in enumerate(network) if isinstance(m, nn.Conv2d))


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
    values = (
        network[: _find_last_convolution(network) + 1](data.x_train)[:, channel].flatten().double()
    )  # (1297,)
    spread, mean = torch.std_mean(values, correction=0)
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for size in sizes:
        drawn = torch.randint(len(values), (draws, size), generator=generator)
        spreads, means = torch.std_mean(values[drawn], 1, correction=0)
        found[size] = (((means - mean) / spread).tolist(), (spreads / spread).tolist())
    return found


def find_gradient_share(
    part_size: int, *, top: float = 0.01, batches: int = 10, seed: int = 0
) -> float:
    """How unevenly the gradient reaches the values behind the last convolution of a fresh network.

    Batch norm stands behind each convolution, and `part_size` images share its statistics.

    Returns:
        the share of the squared gradient that the `top` share of the values carries, median over
        batches of 32 images.
    """
    data = load_digits_split(seed).as_images()
    network = make_network("batch_norm", CHANNELS, part_size=part_size, seed=seed)
    caught: list[Tensor] = []
    convolution = network[_find_last_convolution(network)]
    convolution.register_full_backward_hook(
        lambda module, of_input, of_output: caught.extend(of_output)
    )
    for x, y in zip(data.x_train.split(32)[:batches], data.y_train.split(32), strict=False):
        cross_entropy(network(x), y).backward()
    squares = torch.stack(caught).flatten(1).square().sort(1, descending=True).values
    largest = squares[:, : round(top * squares.shape[1])]
    return (largest.sum(1) / squares.sum(1)).median().item()
