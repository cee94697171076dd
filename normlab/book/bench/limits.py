"""What bounds a norm on this machine: `python -m normlab.book.bench.limits FILE` records it.

The bytes that it moves, which :func:`count_moved` adds up, and its share of the time of a
Transformer block, which says whether a faster norm matters at all. `normlab.book.bench.ladder` has
the time of a copy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.book.bench.cases import Case
from normlab.book.bench.reporting import describe_machine, write_record
from normlab.book.bench.timing import CONTROL, control_error, measure, paired_ratio
from normlab.book.bench.variants import make_variants

TOKENS = 512
WIDTHS = (64, 256, 1024)


def measure_share(width: int, *, rounds: int = 9) -> dict[str, Any]:
    """Share of two layer norms in forward and backward of a Transformer block of torch.

    There are 512 tokens of `width` features, heads of 32 features and a feed-forward layer four
    times as wide. The block has torch's norms, whichever variant's time is divided by its time.
    """
    block = torch.nn.TransformerEncoderLayer(
        width, max(1, width // 32), 4 * width, dropout=0.0, batch_first=True, norm_first=True
    )
    x = torch.randn(1, TOKENS, width, generator=torch.Generator().manual_seed(0))
    dy = torch.ones_like(x)
    parameters = list(block.parameters())

    def step() -> object:
        return torch.autograd.grad(block(x), parameters, dy)

    norms = make_variants(Case("layer_norm", "float32", (TOKENS, width)))
    norms.pop("copy")
    times = measure({**norms, "block": step}, rounds=rounds)
    return {
        "width": width,
        "control": control_error(times, "torch"),
        "share": {
            name: 2 * paired_ratio(values, times["block"]).median
            for name, values in times.items()
            if name not in ("block", CONTROL)
        },
    }


class _Traffic(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        read, written = (
            [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, Tensor)]
            for tree in ((args, kwargs), result)
        )
        places = {t.untyped_storage().data_ptr() for t in read}
        is_view = not func._schema.is_mutable and all(
            t.untyped_storage().data_ptr() in places for t in written
        )
        if not is_view:
            self.bytes += sum(
                min(t.numel() * t.element_size(), t.untyped_storage().nbytes())
                for t in (*read, *written)
            )
        return result


def count_moved(case: Case, function: Callable[..., Tensor]) -> float:
    """Bytes that the operators of forward and backward read and write, over those of the input.

    Each operator counts what it is given and what it makes, views do not. It is for functions of
    torch's operations: no kernel runs under this count, and what a cache saves is not known.
    """
    tensors, dy = case.tensors()
    with _Traffic() as traffic:
        torch.autograd.grad(function(*tensors), tensors, dy)
    return traffic.bytes / case.bytes


def main(path: str) -> None:
    """Measure all of it and write it to a file."""
    torch.set_num_threads(1)
    shares = [measure_share(width) for width in WIDTHS]
    write_record(path, {"machine": describe_machine(), "shares": shares})
    print(json.dumps(shares, indent=1))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m normlab.book.bench.limits FILE")
    main(sys.argv[1])
