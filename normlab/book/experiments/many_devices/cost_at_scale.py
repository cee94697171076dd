"""Latency and transfer of the statistics' collectives on many devices: arithmetic, no measurement.

The form is that of the model by which NCCL chooses an algorithm: a start, a time for each step
between devices of one machine and between machines, and bytes over bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from normlab.book.experiments.many_devices.communication_cost import Cost


class Steps(NamedTuple):
    """What one algorithm takes, in seconds."""

    start: float  #: once for each collective
    near: float  #: of a step between devices of one machine
    far: float  #: of a step between machines


class Cluster(NamedTuple):
    """Machines of several devices. The times are NCCL's, for its protocol with the least latency.

    Source:
        NCCL, src/graph/tuning.cc, commit b6475625: baseLat and hwLat, LL.
    """

    devices: int  #: all together
    tree: Steps = Steps(6.8e-6, 0.6e-6, 5.0e-6)  #: times of the all-reduce
    ring: Steps = Steps(6.6e-6, 0.6e-6, 2.7e-6)  #: times of the all-gather
    bandwidth: float = 50e9  #: bytes a second of a device; an assumption
    per_machine: int = 8  #: devices of a machine; an assumption

    @property
    def machines(self) -> int:
        """Number of machines."""
        count, rest = divmod(self.devices, self.per_machine)
        if rest or count < 1 or count & (count - 1):
            raise ValueError(
                f"devices: got {self.devices}; expected {self.per_machine} times a power of two"
            )
        return count


def tree_all_reduce(size: int, cluster: Cluster) -> Cost:
    """`size` bytes of a device, up a tree of machines and down along the chain of devices in each.

    Example:
        >>> round(1e6 * tree_all_reduce(4, Cluster(8)).latency, 1)
        15.2
    """
    far = cluster.machines.bit_length() - 1
    start, near_time, far_time = cluster.tree
    latency = start + 2 * ((cluster.per_machine - 1) * near_time + far * far_time)
    return Cost(1, 2 * size, latency, 2 * size / cluster.bandwidth)


def ring_all_gather(size: int, cluster: Cluster) -> Cost:
    """Each device passes on what it got, until everyone has the `size` bytes of every device.

    Example:
        >>> ring_all_gather(4, Cluster(16)).bytes
        60
    """
    steps, far = cluster.devices - 1, cluster.machines - 1
    start, near_time, far_time = cluster.ring
    latency = start + (steps - far) * near_time + far * far_time
    return Cost(1, steps * size, latency, steps * size / cluster.bandwidth)


def add(costs: Sequence[Cost]) -> Cost:
    """Collectives one after the other, none of which overlaps anything."""
    return Cost(*(sum(column) for column in zip(*costs, strict=True)))


def gathered_batch_norms(channels: Sequence[int], cluster: Cluster) -> Cost:
    """Forward pass of synchronized batch norms: 2C + 1 numbers of 4 bytes, gathered by a ring."""
    return add([ring_all_gather(4 * (2 * c + 1), cluster) for c in channels])


def reduced_batch_norms(channels: Sequence[int], cluster: Cluster) -> Cost:
    """Backward pass of synchronized batch norms: 2C sums of 4 bytes, reduced by a tree."""
    return add([tree_all_reduce(4 * 2 * c, cluster) for c in channels])


def divided_rms_norms(norms: int, tokens: int, cluster: Cluster) -> Cost:
    """Forward and backward pass of RMS norms with divided features: 4 bytes a token, by a tree."""
    return add([tree_all_reduce(4 * tokens, cluster)] * 2 * norms)
