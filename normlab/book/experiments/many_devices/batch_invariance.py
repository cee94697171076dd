"""Which rows change a bit when other rows stand beside them in the batch."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from normlab import kernels, layers
from normlab.book.experiments.sweep import experiment

Capability = Literal["default", "avx2", "avx512"]
DTYPES = ("float32", "bfloat16", "float16")
FEATURES = 65  # of a row, odd on purpose
ROWS = 513  # of the whole batch
SIZES = (1, 2, 7, 64, 255)  # of the smaller batches, cut from the front
_CODE = (
    "import json, sys; "
    "from normlab.book.experiments.many_devices.batch_invariance import measure_all; "
    "print(json.dumps(measure_all(*json.loads(sys.argv[1]))))"
)


def written_rms_norm(x: Tensor) -> Tensor:
    """RMS norm written out in the dtype of the rows (rows, features), with nothing in float32."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def _functions() -> Iterator[tuple[str, str, Callable[[Tensor], Tensor]]]:
    yield "torch.rsqrt", "torch", lambda x: x[:, 0].abs().add(0.5).rsqrt()
    yield "written_rms_norm", "torch", written_rms_norm
    shape = (FEATURES,)
    calls: dict[str, Callable[[Any, Tensor], Tensor]] = {
        "layer_norm": lambda module, x: module.layer_norm(x, shape),
        "rms_norm": lambda module, x: module.rms_norm(x, shape),
        "group_norm": lambda module, x: module.group_norm(x.unsqueeze(-1), 1),
        "instance_norm": lambda module, x: module.instance_norm(x.unsqueeze(1)),
    }
    modules = {"composition": layers, **kernels.backends()}
    for backend in ("composition", "numba"):
        if backend not in modules:
            continue
        module = modules[backend]
        for name, call in calls.items():
            yield name, backend, functools.partial(call, module)


def count_changed(function: Callable[[Tensor], Tensor], x: Tensor, size: int) -> int:
    """Rows of the first `size` whose bits depend on the rows behind them.

    `function` goes from rows (rows, features) to rows, or to a number for each.
    """
    return _differing(function(x[:size]), function(x)[:size])


def _differing(y: Tensor, other: Tensor) -> int:
    return int((y != other).reshape(len(y), -1).any(1).sum())


def make_rows(rows: int = ROWS) -> Tensor:
    """Normal numbers in float32, (rows, FEATURES)."""
    return torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(0))


def measure_all(rows: int = ROWS, sizes: Sequence[int] = SIZES) -> list[dict[str, Any]]:
    """Every function in every dtype, with the instructions that this process uses."""
    whole, found = make_rows(rows), []
    for name, backend, function in _functions():
        for dtype in DTYPES:
            x = whole.to(getattr(torch, dtype))
            one_by_one = torch.cat([function(x[i : i + 1]) for i in range(len(x))])
            found.append(
                {
                    "function": name,
                    "backend": backend,
                    "dtype": dtype,
                    "alone": _differing(one_by_one, function(x)),
                    "changed": [count_changed(function, x, size) for size in sizes],
                    "used": torch.backends.cpu.get_cpu_capability().lower(),
                }
            )
    return found


@experiment(capability=("default", "avx2", "avx512"))
def batch_invariance(
    capability: Capability, *, rows: PositiveInt = ROWS, sizes: tuple[PositiveInt, ...] = SIZES
) -> list[dict[str, Any]]:
    """Compare rows of normal numbers, in one batch and in smaller ones, in a new process.

    Torch chooses its instructions when it is imported.

    Args:
        capability: instructions that torch may use.
        rows: of the whole batch.
        sizes: of the smaller batches, cut from the front.

    Returns:
        function: what was called.
        backend: "composition" for the layer, a name of `normlab.kernels.backends`, or "torch".
        dtype: of the rows.
        alone: rows that change when each is computed by itself.
        changed: rows that change in a batch of each of the smaller sizes.
        used: instructions that torch says it used.
    """
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability}
    command = [sys.executable, "-c", _CODE, json.dumps([rows, sizes])]
    told = subprocess.check_output(command, env=environment, text=True)
    found: list[dict[str, Any]] = json.loads(told)
    return found
