"""Long sweeps are run once and kept as JSON, with all that is needed to run them again."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch


def power_above(error: float, least: float = 1e-12) -> float:
    """Round an error up to a power of ten, at least `least`, so that every machine prints one."""
    return max(least, 10.0 ** math.ceil(math.log10(error))) if error > 0 else least


def rounded(value: float, digits: int = 4) -> float:
    """Keep so many significant digits: enough for a curve, and the file stays small.

    Example:
        >>> rounded(0.0012345678), rounded(123456.0)
        (0.001235, 123500.0)
    """
    return float(f"{value:.{digits}g}")


def make_record(
    experiment: str, config: Any, result: Any, *, path: Path | str | None = None
) -> dict[str, Any]:
    """Command, versions, configuration and result as plain dictionaries and lists."""
    arguments = [experiment, *_options(config)]
    if path is not None:
        arguments += ["--record", Path(path).as_posix()]
    return {
        "command": shlex.join(["python", "-m", "normlab.experiments", *arguments]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "config": dataclasses.asdict(config),
        "result": result if isinstance(result, dict) else dataclasses.asdict(result),
    }


def _options(config: Any) -> Iterator[str]:
    """Command line of the settings that differ from their defaults."""
    for field in dataclasses.fields(config):
        value, flag = getattr(config, field.name), field.name.replace("_", "-")
        if value == field.default:
            continue
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}"
            yield from _words(value)


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _words(item)
    else:
        yield str(value)


def format_record(record: dict[str, Any]) -> str:
    """The text of a record.

    Raises:
        ValueError: a number is not finite, which JSON cannot hold.
    """
    try:
        return json.dumps(record, indent=1, allow_nan=False, default=vars) + "\n"
    except ValueError as error:
        raise ValueError(
            f"result: {error}; an experiment returns None for a number that is not finite"
        ) from None


def write_record(path: Path | str, record: dict[str, Any]) -> None:
    """Write a record whole or not at all: an interrupted call leaves the old file."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(format_record(record), encoding="utf-8")
    os.replace(beside, path)


def _read(path: Path | str) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"path: {path} is not JSON ({error}); delete it") from None
    missing = {"command", "versions", "config", "result"} - set(record)
    if missing:
        raise ValueError(f"path: {path} lacks {sorted(missing)}; record it again")
    return record


def read_record(path: Path | str) -> dict[str, Any]:
    """Read a finished record as plain dictionaries and lists.

    Raises:
        ValueError: a part of the record is missing, or its run was interrupted.
    """
    record = _read(path)
    if "finished_points" in record:
        raise ValueError(
            f"path: {path} is unfinished, with {record['finished_points']} points; "
            f"`{record['command']}` continues"
        )
    return record


def read_finished(
    path: Path | str, experiment: str, config: Any, *, points: int
) -> tuple[int, list[dict[str, Any]]]:
    """How many points of a sweep a file holds, and their outcomes; none where there is no file.

    Raises:
        ValueError: there is no such folder, or the file has other settings, or was begun with
            another torch.
    """
    if not Path(path).parent.is_dir():
        raise ValueError(f"record: got {path}; there is no such folder, make it first")
    if not Path(path).exists():
        return 0, []
    record = _read(path)
    wanted = json.loads(json.dumps(dataclasses.asdict(config)))
    if shlex.split(record["command"])[3:4] != [experiment] or record["config"] != wanted:
        names = {*wanted, *record["config"]}
        other = sorted(n for n in names if wanted.get(n) != record["config"].get(n))
        raise ValueError(
            f"record: {path} is of another run ({', '.join(other) or record['command']}); "
            "name another file, or delete this one"
        )
    finished = record.get("finished_points", points)
    began = record["versions"]["torch"]
    if finished < points and began != torch.__version__:
        raise ValueError(
            f"record: {path} was begun with torch {began}, this is {torch.__version__}; "
            "continue with that one, or delete the file"
        )
    return finished, record["result"]["outcomes"]


def describe_record(path: Path | str) -> str:
    """Say in two lines what was recorded, with which torch, and how to record it again."""
    record = read_record(path)
    count, seeds = len(record["result"]["outcomes"]), record["config"]["seeds"]
    return (
        f"recorded: {count} runs, seeds {min(seeds)} to {max(seeds)}, "
        f"torch {record['versions']['torch'].partition('+')[0]}\n{record['command']}"
    )
