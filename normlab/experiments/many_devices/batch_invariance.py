"""Which rows change a bit when other rows stand beside them in the batch."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from normlab import kernels, layers
from normlab.experiments.results import Result, read_result
from normlab.experiments.settings import Count, Index, check_settings

Capability = Literal["default", "avx2", "avx512"]
DTYPES = ("float32", "bfloat16", "float16")
_CODE = (
    "import json, sys; from normlab.experiments.many_devices import batch_invariance as b; "
    "print(json.dumps(b.measure_all(b.Config(**json.loads(sys.argv[1])))))"
)


@dataclass(frozen=True)
class Config:
    """Rows of normal numbers, in one batch and in smaller ones."""

    #: instructions of the processor that torch may use
    capabilities: tuple[Capability, ...] = ("default", "avx2", "avx512")
    rows: Count = 513  #: of the whole batch
    features: Count = 65  #: of a row, odd on purpose
    sizes: tuple[Count, ...] = (1, 2, 7, 64, 255)  #: of the smaller batches, cut from the front
    seed: Index = 0  #: of the rows

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class Outcome:
    """One function in one dtype."""

    capability: str  #: that torch says it used
    function: str  #: what was called
    backend: str  #: "composition" for the layer, a name of `normlab.kernels.backends`, or "torch"
    dtype: str  #: of the rows
    alone: int  #: rows that change when each is computed by itself
    changed: list[int]  #: rows that change in a batch of each of the smaller sizes


def written_rms_norm(x: Tensor) -> Tensor:
    """RMS norm written out in the dtype of the rows (rows, features), with nothing in float32."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def _functions(features: int) -> Iterator[tuple[str, str, Callable[[Tensor], Tensor]]]:
    yield "torch.rsqrt", "torch", lambda x: x[:, 0].abs().add(0.5).rsqrt()
    yield "written_rms_norm", "torch", written_rms_norm
    shape = (features,)
    calls: dict[str, Callable[[Any, Tensor], Tensor]] = {
        "layer_norm": lambda module, x: module.layer_norm(x, shape),
        "rms_norm": lambda module, x: module.rms_norm(x, shape),
        "group_norm": lambda module, x: module.group_norm(x.unsqueeze(-1), 1),
        "instance_norm": lambda module, x: module.instance_norm(x.unsqueeze(1)),
    }
    modules = {"composition": layers, **kernels.backends()}
    for backend in ("composition", "chunked", "numba"):
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


def make_rows(config: Config) -> Tensor:
    """The rows in float32, (rows, features)."""
    g = torch.Generator().manual_seed(config.seed)
    return torch.randn(config.rows, config.features, generator=g)


def measure_all(config: Config) -> list[dict[str, Any]]:
    """Every function in every dtype, with the instructions that this process uses."""
    rows, found = make_rows(config), []
    capability = torch.backends.cpu.get_cpu_capability().lower()
    for name, backend, function in _functions(config.features):
        for dtype in DTYPES:
            x = rows.to(getattr(torch, dtype))
            alone = torch.cat([function(x[i : i + 1]) for i in range(len(x))])
            changed = [count_changed(function, x, size) for size in config.sizes]
            one_by_one = _differing(alone, function(x))
            found.append(asdict(Outcome(capability, name, backend, dtype, one_by_one, changed)))
    return found


def run(config: Config) -> Result:
    """Measure in a process for each capability, since torch chooses when it is imported.

    Args:
        config: settings.
    """
    outcomes: list[Outcome] = []
    for capability in config.capabilities:
        environment = os.environ | {"ATEN_CPU_CAPABILITY": capability}
        command = [sys.executable, "-c", _CODE, json.dumps(asdict(config))]
        told = subprocess.check_output(command, env=environment, text=True)
        outcomes += [Outcome(**o) for o in json.loads(told)]
    return Result(tuple(outcomes))


read = read_result  # outcomes with the fields of Outcome
