"""Run a function of one point over a grid: in parallel, recorded as it goes, resumed later."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from normlab.experiments.processor import with_threads
from normlab.experiments.recording import make_record, read_finished, read_record, write_record
from normlab.experiments.results import Result
from normlab.experiments.settings import check_settings

Point = dict[str, Any]


def grid(**axes: Iterable[Any]) -> list[Point]:
    """Every combination of the values of the axes, those of the last axis side by side.

    Example:
        >>> grid(norm=("none", "layer_norm"), seed=(0, 1))[:2]
        [{'norm': 'none', 'seed': 0}, {'norm': 'none', 'seed': 1}]
    """
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


class Sweep:
    """An experiment: called with a configuration, it runs every point of its grid.

    Args:
        run_one: `run_one(config, **point)` gives a dictionary of what was measured, or a dataclass
            that also repeats the point, or several of these; a function of a module, so that
            other processes find it.
        points: `points(config)` gives the grid where it is not a plain product of axes.
        axes: parameter of `run_one`, and the field of the configuration with its values; the
            last axis varies fastest.
    """

    def __init__(
        self,
        run_one: Callable[..., Any],
        points: Callable[[Any], Iterable[Point]] | None = None,
        **axes: str,
    ) -> None:
        parameters = list(inspect.signature(run_one).parameters)[1:]
        if points is None and set(parameters) != set(axes):
            raise TypeError(f"axes: got {', '.join(axes)}; run_one takes {', '.join(parameters)}")
        self.run_one = run_one
        self.name = run_one.__module__.rpartition(".")[2]
        self._points = points
        self._axes = axes

    def points(self, config: Any) -> list[Point]:
        """Arguments of `run_one`, in the order of the outcomes."""
        if self._points is not None:
            return list(self._points(config))
        return grid(**{name: getattr(config, field) for name, field in self._axes.items()})

    def __call__(
        self,
        config: Any,
        *,
        jobs: int = 1,
        backend: str | None = None,
        record: Path | str | None = None,
    ) -> Result:
        """Run what the record does not hold yet.

        Args:
            config: settings.
            jobs: points that run at a time, each on one thread; their number changes no result.
            backend: of joblib, such as "loky" (processes, the default), "dask" or "ray"; a
                distributed one needs its client first.
            record: JSON file. It is written after every `jobs` points; a run with the same
                settings continues from it, and a finished file is only read.

        Raises:
            ValueError: a setting is out of its domain, or the record belongs to other settings
                or, unfinished, to another version of torch.
        """
        check_settings(config)
        if jobs < 1:
            raise ValueError(f"jobs: got {jobs}; expected 1 or more")
        points = self.points(config)
        finished, outcomes = 0, []
        if record is not None:
            finished, found = read_finished(record, self.name, config, points=len(points))
            outcomes = [self._read_outcome(fields) for fields in found]
        with (
            parallel_config(backend=backend or ("loky" if jobs > 1 else "sequential")),
            Parallel(n_jobs=jobs, batch_size=1) as parallel,
            tqdm(total=len(points), initial=finished, disable=None) as bar,
        ):
            # The next points start when the last are on the disk: a kill costs `jobs` of them.
            for start in range(finished, len(points), jobs):
                wave = points[start : start + jobs]
                returned = parallel(delayed(_run_alone)(self.run_one, config, p) for p in wave)
                for point, measured in zip(wave, returned, strict=True):
                    outcomes += _as_outcomes(point, measured)
                bar.update(len(wave))
                if record is not None:
                    self._write(record, config, outcomes, start + len(wave), len(points))
        return Result(tuple(outcomes))

    def _write(
        self, path: Path | str, config: Any, outcomes: list[Any], finished: int, points: int
    ) -> None:
        record = make_record(self.name, config, Result(tuple(outcomes)), path=path)
        if finished < points:
            record["finished_points"] = finished
        write_record(path, record)

    def read(self, record: Path | str) -> Result:
        """Read a finished record.

        Args:
            record: JSON file.

        Raises:
            ValueError: a part of the record is missing, or its run was interrupted.
        """
        found = read_record(record)["result"]["outcomes"]
        return Result(tuple(self._read_outcome(fields) for fields in found))

    def _read_outcome(self, fields: dict[str, Any]) -> Any:
        fields = {name: _freeze(value) for name, value in fields.items()}
        returned = typing.get_type_hints(self.run_one).get("return")
        for kind in (returned, *typing.get_args(returned)):
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                return kind(**fields)
        return SimpleNamespace(**fields)


def _run_alone(run_one: Callable[..., Any], config: Any, point: Point) -> Any:
    """Run one point on one thread, whatever process it is in."""
    with with_threads(1), threadpool_limits(1):
        return run_one(config, **point)


def _as_outcomes(point: Point, measured: Any) -> list[Any]:
    if isinstance(measured, dict):
        return [SimpleNamespace(**point, **measured)]
    if isinstance(measured, list | tuple):
        return [outcome for each in measured for outcome in _as_outcomes(point, each)]
    return [measured]


def _freeze(value: Any) -> Any:
    """Lists from JSON are tuples in memory."""
    return tuple(map(_freeze, value)) if isinstance(value, list) else value
