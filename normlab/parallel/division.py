"""A whole that is divided among processes, and what a norm gives for it or for a share of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from normlab import layers
from normlab.checks.probing import ForeignFunction, ForeignNorm
from normlab.norms import NORMS, Case

Divided = Literal["samples", "features", "tokens", "heads", "all heads"]
MOMENTUM = 0.1
# samples, tokens and features of a head, where heads are divided
_SAMPLES, _TOKENS, HEAD_DIM = 2, 3, 4


@dataclass(frozen=True)
class Division:
    """A whole, and how it is divided."""

    like: str  #: key of :data:`normlab.norms.NORMS`
    over: Divided  #: what is divided; "heads" are normalized each by itself, "all heads" together
    shards: tuple[int, ...]  #: how many rows or columns of x each process has
    #: the whole input as a table, (samples or tokens, features); where heads are divided, a row is
    #: a token of one head, or of all heads
    x: Tensor
    weight: Tensor  #: (features,)
    bias: Tensor | None  #: the same, or None
    dy: Tensor  #: upstream gradient
    offset: float = 0.0  #: mean of x; 0 for float64 cases

    @property
    def parameters(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias."""
        return self.weight, self.bias

    @property
    def case(self) -> Case:
        """What the input looks like to a norm."""
        shape = tuple(self.x.shape)
        return Case(shape, shape[1:], bias=self.bias is not None)

    @property
    def axis(self) -> int:
        """The divided axis of x; where it is 1, each process has weights of its own."""
        return 1 if self.over in ("features", "all heads") else 0

    @property
    def unit(self) -> int:
        """Rows or columns of x for one of what is divided."""
        return {"heads": _SAMPLES * _TOKENS, "all heads": HEAD_DIM}.get(self.over, 1)

    @property
    def heads(self) -> int | None:
        """How many there are; None where no heads are divided."""
        return self.x.shape[self.axis] // self.unit if self.unit > 1 else None

    def arrange(self, table: Tensor) -> Tensor:
        """What a layer takes for a table: itself, or (samples, heads, tokens, features)."""
        sizes = _SAMPLES, _TOKENS
        if self.over == "heads":
            return table.view(self.heads or 0, *sizes, HEAD_DIM).transpose(0, 1)
        if self.over == "all heads":
            return table.view(*sizes, self.heads or 0, HEAD_DIM).transpose(1, 2)
        return table

    def collect(self, y: Tensor) -> Tensor:
        """What a layer gives, as a table again."""
        if self.heads is None:
            return y
        return y.transpose(*((0, 1) if self.axis == 0 else (1, 2))).reshape(self.x.shape)

    def share(self, rank: int) -> Division:
        """What one process has."""

        def cut(t: Any) -> Any:
            divided = t is not None and (t.dim() > 1 or self.axis == 1)
            return t.split(self.shards, min(self.axis, t.dim() - 1))[rank] if divided else t

        own = {name: cut(getattr(self, name)) for name in ("x", "weight", "bias", "dy")}
        return replace(self, shards=(self.shards[rank],), **own)

    def __str__(self) -> str:
        *first, last = (str(n // self.unit) for n in self.shards)
        return f"{', '.join(first)}{' and ' if first else ''}{last} {self.over.split()[-1]}"


class Values(NamedTuple):
    """What a norm gives for a case."""

    y: Tensor  #: output
    dx: Tensor  #: input gradient
    dweight: Tensor | None  #: weight gradient, or None
    dbias: Tensor | None  #: bias gradient, or None
    running_mean: Tensor | None = None  #: after the case, or None
    running_var: Tensor | None = None  #: after the case, or None


def make_divisions(like: str, over: Divided, world_size: int) -> Iterator[Division]:
    """Equal, uneven, empty and smallest shares in float64, and a large mean in float32."""
    uneven = tuple((5, 3, 4, 2)[r % 4] for r in range(world_size))
    empty = (*(7,) * (world_size - 1), 0)
    for seed, shards in enumerate(((4,) * world_size, uneven, empty, (1,) * world_size)):
        if world_size > 1 or sum(shards) > 1:
            yield _make_division(like, over, shards, seed)
    yield _make_division(like, over, tuple(8 * n for n in uneven), 4, offset=1e4)


def _make_division(
    like: str, over: Divided, shards: tuple[int, ...], seed: int, offset: float = 0.0
) -> Division:
    g = torch.Generator().manual_seed(seed)
    empty = torch.empty(0, 0)
    blank = Division(like, over, shards, empty, empty, None, empty)
    shards = tuple(n * blank.unit for n in shards)
    rows = _SAMPLES * _TOKENS if over == "all heads" else 3
    columns = HEAD_DIM if over == "heads" else 6
    shape = (rows, sum(shards)) if blank.axis == 1 else (sum(shards), columns)
    dtype = torch.float32 if offset else torch.float64
    # each cell has a mean of its own, so that shares differ in mean and spread
    x = torch.randn(shape, generator=g, dtype=torch.float64)
    x = x + 2 * torch.randn(shape, generator=g, dtype=torch.float64) + offset
    dy = torch.randn(shape, generator=g, dtype=torch.float64)
    weight, bias = torch.randn(2, shape[1], generator=g, dtype=torch.float64)
    x, weight, bias, dy = (t.to(dtype) for t in (x, 1.5 + weight / 2, bias, dy))
    return Division(
        like, over, shards, x, weight, bias if NORMS[like].has_bias else None, dy, offset
    )


def scalar(y: Tensor, dy: Tensor) -> Tensor:
    """A number whose gradient by `y` is `dy`: torch's first backward with a given gradient
    imports what takes as long as torch, on each process.
    """
    return (y * dy).sum()


def one_process(
    whole: Division, eps: float | None, *, affine: bool = True, torchs: bool = False
) -> Values:
    """What one process finds for the whole, by :mod:`normlab.layers` or by torch's function."""
    function = NORMS[whole.like].torch_function() if torchs else getattr(layers, whole.like)
    assert function is not None
    if not affine:
        whole = replace(whole, weight=torch.ones_like(whole.weight), bias=None)
    return differentiate(ForeignFunction(function, whole.like, [whole.case], eps), whole)


def differentiate(
    norm: ForeignNorm, share: Division, reduce: Callable[[nn.Module], Any] | None = None
) -> Values:
    """What a norm gives for a share, or for the whole, forward and backward.

    Args:
        norm: a function or a module.
        share: what it is given.
        reduce: what a training step calls on a module between `backward` and the step.
    """
    x = share.x.clone().requires_grad_()
    parameters = [None if t is None else t.clone().requires_grad_() for t in share.parameters]
    running = x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
    if isinstance(norm, ForeignFunction):
        y, leaves = norm(
            share.case, x, *parameters, running=running, momentum=MOMENTUM, eps=norm.expected_eps
        )
        scalar(y, share.dy).backward()
    else:
        module = norm.prepare(x.dtype, *share.parameters, running).train()
        part: Any
        for part in module.modules():
            if hasattr(part, "momentum"):
                part.momentum = MOMENTUM
        y = share.collect(module(share.arrange(x)))
        scalar(y, share.dy).backward()
        if reduce is not None:
            reduce(module)
        leaves, running = norm.leaves_of(module), norm.running_of(module) or running
    grads = (None if p is None or p.grad is None else p.grad.flatten() for p in leaves)
    statistics = running if NORMS[share.like].has_running else (None, None)
    assert x.grad is not None
    return Values(y.detach(), x.grad, *grads, *statistics)


def double(case: Division) -> Division:
    """The same in float64."""
    bias = None if case.bias is None else case.bias.double()
    x, weight, dy = case.x.double(), case.weight.double(), case.dy.double()
    return replace(case, x=x, weight=weight, bias=bias, dy=dy)
