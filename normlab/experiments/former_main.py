"""The command line of the experiments that are still modules with a configuration and a run."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import tyro
from tyro.conf import OmitArgPrefixes

import normlab.experiments
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.recording import format_record, make_record, write_record
from normlab.experiments.settings import check_settings


@dataclasses.dataclass(frozen=True)
class Recording:
    """Where the result goes."""

    record: Path | None = None  #: JSON file to write instead of the terminal


@dataclasses.dataclass(frozen=True)
class Running(Recording):
    """How a sweep runs, and where its result goes.

    Attributes:
        record: JSON file to write instead of the terminal. It is written as the run proceeds;
            the same command continues an interrupted run and leaves a finished file alone.
        jobs: points that run at a time, each on one thread; their number changes no result.
        backend: of joblib. "dask" connects to DASK_SCHEDULER_ADDRESS, or starts local workers.
    """

    jobs: int = 1
    backend: str | None = None


@functools.cache
def find_experiments() -> dict[str, str]:
    """Name and module of all files that define a `Config` and a `run`."""
    found = {}
    for info in pkgutil.walk_packages(normlab.experiments.__path__, "normlab.experiments."):
        name = info.name.rpartition(".")[2]
        if not info.ispkg and not name.startswith("_") and {"Config", "run"} <= _defined(info.name):
            found[name] = info.name
    return dict(sorted(found.items()))


def _parse(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _defined(module: str) -> set[str]:
    names = set()
    for node in _parse(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def main(arguments: Sequence[str]) -> int:
    """Run one experiment.

    Returns:
        exit status: 0, or 2 for a bad setting.
    """
    name, *rest = arguments
    try:
        _run(name, importlib.import_module(find_experiments()[name]), rest)
    except (ValueError, TypeError, OSError, ImportError) as error:
        return _complain(str(error))
    return 0


def _complain(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


def parse(module: ModuleType, arguments: Sequence[str]) -> tuple[Any, Recording]:
    """Make the settings of an experiment, and those of its run, out of a command line.

    Raises:
        ValueError: a setting is out of its domain.
        SystemExit: a word is not an option, or a value has the wrong type; the status is 2.
    """
    how = Running if isinstance(module.run, Sweep) else Recording
    parts = [("config", module.Config), ("how", how)]
    parsed: Any = tyro.cli(
        dataclasses.make_dataclass("Command", parts),
        prog=f"python -m normlab.experiments {module.__name__.rpartition('.')[2]}",
        description=(module.__doc__ or "").partition("\n")[0],
        args=list(arguments),
        config=(OmitArgPrefixes,),
    )
    check_settings(parsed.config)
    return parsed.config, parsed.how


def _run(name: str, module: ModuleType, arguments: Sequence[str]) -> None:
    config, how = parse(module, arguments)
    if isinstance(how, Running):
        _connect(how.backend)
        result = module.run(config, **dataclasses.asdict(how))
    else:
        torch.set_num_threads(1)
        result = module.run(config)
        if int(os.environ.get("RANK", "0")):
            return  # one of several that torchrun started; the first one speaks for all
        if how.record is not None:
            write_record(how.record, make_record(name, config, result, path=how.record))
    if how.record is None:
        print(format_record(make_record(name, config, result)), end="")


def _connect(backend: str | None) -> None:
    """Give a distributed backend what joblib expects to be there."""
    if backend == "dask":
        from distributed import Client

        Client()
    elif backend == "ray":
        from ray.util.joblib import register_ray  # type: ignore[import-not-found]

        register_ray()
