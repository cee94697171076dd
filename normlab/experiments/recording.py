"""Long sweeps are run once and kept as JSON, with all that is needed to run them again."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

__all__ = [
    "describe_record",
    "make_record",
    "read_outcomes",
    "read_record",
    "record_from_command_line",
    "rounded",
    "write_record",
]

Outcome = TypeVar("Outcome")


def rounded(value: float, digits: int = 4) -> float:
    """Keep so many significant digits: enough for a curve, and the file stays small.

    Example:
        >>> rounded(0.0012345678), rounded(123456.0)
        (0.001235, 123500.0)
    """
    return float(f"{value:.{digits}g}")


def make_record(
    experiment: str, config: Any, result: Any, *, arguments: Sequence[str] = ()
) -> dict[str, Any]:
    """Command, versions, configuration and result as plain dictionaries and lists.

    Args:
        experiment: module name below normlab.experiments.
        config: the frozen dataclass that was run.
        result: the dataclass of plain numbers that it gave.
        arguments: command line after the name of the experiment.
    """
    return {
        "command": shlex.join(["python", "-m", "normlab.experiments", experiment, *arguments]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "config": dataclasses.asdict(config),
        "result": dataclasses.asdict(result),
    }


def write_record(path: Path | str, *, experiment: str, config: Any, result: Any) -> None:
    """Write configuration, result, versions and the command that regenerates the file.

    Args:
        path: the JSON file.
        experiment: module name below normlab.experiments.
        config: the frozen dataclass that was run.
        result: the dataclass of plain numbers that it gave.
    """
    path = Path(path)
    record = make_record(experiment, config, result, arguments=["--record", path.as_posix()])
    text = json.dumps(record, indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_record(path: Path | str) -> dict[str, Any]:
    """Read a record as plain dictionaries and lists.

    Raises:
        ValueError: a part of the record is missing.
    """
    record: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    missing = {"command", "versions", "config", "result"} - set(record)
    if missing:
        raise ValueError(f"path: {path} lacks {sorted(missing)}; record it again")
    return record


def read_outcomes(path: Path | str, outcome: type[Outcome]) -> tuple[Outcome, ...]:
    """Read the outcomes of a recorded sweep as the experiment's own dataclass.

    Args:
        path: the JSON file.
        outcome: the dataclass, for example `batch_sizes.Outcome`.
    """
    return tuple(outcome(**fields) for fields in read_record(path)["result"]["outcomes"])


def describe_record(path: Path | str) -> str:
    """Say in two lines what was recorded, with which torch, and how to record it again."""
    record = read_record(path)
    count, seeds = len(record["result"]["outcomes"]), record["config"]["seeds"]
    return (
        f"recorded: {count} runs, seeds {min(seeds)} to {max(seeds)}, "
        f"torch {record['versions']['torch'].partition('+')[0]}\n{record['command']}"
    )


def record_from_command_line(
    experiment: str,
    config: Any,
    run: Callable[[Any], Any],
    arguments: Sequence[str] | None = None,
) -> None:
    """Serve `python -m normlab.experiments.NAME --record FILE`.

    Args:
        experiment: module name below normlab.experiments.
        config: what to run.
        run: the experiment's `run`.
        arguments: command line; None reads the real one.
    """
    parser = argparse.ArgumentParser(prog=f"python -m normlab.experiments.{experiment}")
    parser.add_argument("--record", required=True, metavar="FILE", help="JSON file to write")
    path = parser.parse_args(arguments).record
    torch.set_num_threads(1)
    write_record(path, experiment=experiment, config=config, result=run(config))
