"""Which cells of the input share statistics, seen from which outputs move together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.checks.probing.layer import ForeignLayer, NoNorm


@dataclass(frozen=True)
class Groups:
    """Boxes of cells that share statistics."""

    axes: tuple[int, ...]  #: reduced as a whole
    split: int | None = None  #: axis that is reduced in blocks, or None
    block: int = 1  #: size of a block

    @property
    def reduced(self) -> tuple[int, ...]:
        """All reduced axes, the split one included."""
        return tuple(sorted((*self.axes, *([] if self.split is None else [self.split]))))

    def count(self, shape: Sequence[int]) -> int:
        """Number of cells in a group."""
        return self.block * math.prod(shape[a] for a in self.axes)

    def view(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """`x` with the blocks on an axis of their own, and the axes to reduce."""
        if self.split is None:
            return x, self.axes
        moved = tuple(a + (a > self.split) for a in self.axes)
        return x.unflatten(self.split, (-1, self.block)), (*moved, self.split + 1)

    def mean(self, x: Tensor) -> Tensor:
        """Mean of each group, in the shape of `x`."""
        view, dims = self.view(x)
        mean = view.mean(dims, keepdim=True) if dims else view
        return mean.expand_as(view).reshape(x.shape)

    def standardize(
        self, x: Tensor, *, centered: bool, centered_root: bool | None = None
    ) -> tuple[Tensor, Tensor]:
        """The input divided by its root mean square, and the mean square (divisor n).

        The mean is subtracted in the root where it is elsewhere, unless `centered_root` is given.
        """
        d = x - self.mean(x)
        in_root = centered if centered_root is None else centered_root
        var = self.mean((d if in_root else x).square())
        return (d if centered else x) / var.sqrt(), var


class InterleavedGroups(NoNorm):
    """Every G-th cell of an axis of the input shares statistics, in G groups."""

    def __init__(self, axis: int, groups: int):
        super().__init__(f"cells of axis {axis} that are {groups} apart share statistics")
        self.axis, self.groups = axis, groups


def moved_outputs(layer: ForeignLayer, cell: tuple[int, ...], *, training: bool = True) -> Tensor:
    """Outputs that change when one input becomes by far the largest."""
    moved = torch.zeros(layer.shape, dtype=torch.bool)
    half = layer.dtype in (torch.bfloat16, torch.float16)
    large = 100.0 if layer.dtype == torch.float16 else 5 * math.sqrt(math.prod(layer.shape))
    for seed in range(11, 16 if half else 13):
        x = layer.input(seed)
        before = layer.measure(x, training=training)
        x[cell] = large
        after = layer.measure(x, training=training)
        # a matrix product or a float32 step inside may change far outputs in the last place
        tolerance = 0.0 if half else 1e-6 * float(before.abs().max())
        moved |= ~((after - before).abs() <= tolerance)
    return moved


def find_groups(layer: ForeignLayer) -> Groups:
    """Move single inputs and see which outputs follow.

    Raises:
        NoNorm: the outputs that move are not boxes, or not the same for all cells.
    """
    cells = [
        tuple(0 for _ in layer.shape),
        tuple(size - 1 for size in layer.shape),
        tuple(size // 2 for size in layer.shape),
    ]
    moved = {cell: moved_outputs(layer, cell) for cell in dict.fromkeys(cells)}
    _refuse_cumulative(moved, cells[2], cells[1])
    found = [_box(outputs, cell) for cell, outputs in moved.items()]
    if any(other != found[0] for other in found):
        raise NoNorm("inputs at different places share statistics with different neighbors")
    return found[0]


def _refuse_cumulative(
    moved: dict[tuple[int, ...], Tensor], middle: tuple[int, ...], last: tuple[int, ...]
) -> None:
    for axis, size in enumerate(moved[last].shape):
        others = tuple(a for a in range(len(last)) if a != axis)
        from_middle, from_last = (
            moved[cell].any(dim=others) if others else moved[cell] for cell in (middle, last)
        )
        place = torch.arange(size)
        inside = 0 < middle[axis] < size - 1
        if (
            inside
            and torch.equal(from_middle, place >= middle[axis])
            and torch.equal(from_last, place == size - 1)
        ):
            raise NoNorm(
                f"an input acts on its own output and all later ones along axis {axis}, and on no "
                "earlier one: its statistics are cumulative"
            )


def _box(moved: Tensor, cell: tuple[int, ...]) -> Groups:
    if not moved.any():
        raise NoNorm(
            "the output does not depend on the input (statistics over one element give this)"
        )
    axes, split, block = [], None, 1
    box = torch.ones_like(moved)
    for axis, size in enumerate(moved.shape):
        others = tuple(a for a in range(moved.dim()) if a != axis)
        seen = moved.any(dim=others) if others else moved
        width = int(seen.sum())
        view = [1] * moved.dim()
        view[axis] = size
        box &= seen.view(view)
        if not bool(seen[cell[axis]]):
            raise NoNorm("an output does not depend on the input at its own place")
        if width == size:
            axes += [axis] if size > 1 else []
        elif width > 1:
            start = cell[axis] // width * width
            aligned = size % width == 0 and bool(seen[start : start + width].all())
            stride = size // width
            if split is None and size % width == 0 and not aligned:
                every = torch.arange(size) % stride == cell[axis] % stride
                if torch.equal(seen, every):
                    raise InterleavedGroups(axis, stride)
            if split is not None or not aligned:
                raise NoNorm(
                    "the outputs that follow one input are no blocks of equal size: windows that "
                    "overlap, or a function behind the statistics that hides some"
                )
            split, block = axis, width
    if not torch.equal(box, moved):
        raise NoNorm("the outputs that one input moves do not fill a box of the tensor")
    return Groups(tuple(axes), split, block)
