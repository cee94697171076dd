"""What the statistics of a network cost to send, on paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Link(NamedTuple):
    """A connection between devices."""

    latency: float  #: seconds of a collective that sends nothing
    bandwidth: float  #: bytes a second


class Cost(NamedTuple):
    """A step's collectives for the statistics."""

    calls: int  #: collectives
    bytes: int  #: that a device sends
    latency: float  #: seconds of them spent on latency
    transfer: float  #: seconds spent on bandwidth


def price(calls: int, sent: int, link: Link) -> Cost:
    """Latency and transfer of a number of collectives, none of which overlaps anything.

    `sent` are the bytes of all together.

    Example:
        >>> price(2, 1000, Link(1e-5, 1e9)).latency
        2e-05
    """
    return Cost(calls, sent, calls * link.latency, sent / link.bandwidth)


def sync_batch_norm_cost(channels: Sequence[int], link: Link, *, size: int = 4) -> Cost:
    """A step of a network with synchronized batch norms: 2C + 1 numbers forward, 2C backward.

    `channels` has the C of each batch norm, and `size` is that of a number in bytes.
    """
    sent = sum(size * (2 * c + 1 + 2 * c) for c in channels)
    return price(2 * len(channels), sent, link)


def divided_features_cost(
    norms: int, tokens: int, link: Link, *, numbers: int = 1, size: int = 4
) -> Cost:
    """A step of a Transformer whose norms' features are divided.

    `numbers` are sent for each token, 1 for RMS norm and 2 for layer norm, forward as backward;
    `size` is that of a number in bytes.
    """
    return price(2 * norms, 2 * norms * tokens * numbers * size, link)


def resnet_channels() -> list[int]:
    """Channels of the 53 batch norms of a ResNet-50, in their order.

    Source:
        he2016deep, Table 1.
    """
    channels = [64]
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            channels += [width, width, 4 * width]
            if block == 0:
                channels.append(4 * width)
    return channels
