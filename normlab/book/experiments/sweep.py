"""An experiment is a function: one call runs one point, `sweep` runs its grid and records it."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import itertools
import json
import os
import platform
import shlex
import textwrap
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from joblib import Parallel, delayed
from pydantic import ConfigDict, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from threadpoolctl import threadpool_limits
from tqdm import tqdm
from typing_extensions import Doc

from normlab.book.experiments.processor import processor_name, with_threads

Point = dict[str, Any]
Rows = list[dict[str, Any]]
Seed = Annotated[NonNegativeInt, Doc("of all that is drawn: data, initial weights, batches")]
Steps = Annotated[PositiveInt, Doc("updates, at most")]


def experiment(
    *,
    skip: Callable[..., bool] = lambda: False,
    condition: Callable[..., None] = lambda: None,
    **grid: Iterable[Any],
) -> Callable[[Callable[..., Any]], Experiment]:
    """Make an experiment of a function.

    The positional parameters of the function are the axes of the experiment, its keyword-only
    ones the settings, with defaults. Annotations give choices and bounds, in pydantic's types. The
    function returns a dictionary of measures, or a list of them.

    Args:
        skip: called with those axes of a point that it names, says whether the grid has a hole.
        condition: called with those arguments of a point that it names; raises a ValueError for
            settings that do not go together.
        grid: the values of each axis; the last parameter of the function varies fastest.

    Example:
        >>> from normlab.book.experiments.batch_norm.learning_rates import learning_rates
        >>> learning_rates(norm="batch_norm", lr=0.3, seed=0, steps=1).keys()
        dict_keys(['eval_accuracy'])
        >>> table = learning_rates.sweep(norm=["rms_norm"], lr=[0.1, 0.3], seed=[0], steps=1)
        >>> table.lr.tolist()
        [0.1, 0.3]
    """
    return lambda function: Experiment(function, grid, skip, condition)


class Experiment:
    """A function of one point with a grid; see :func:`experiment`.

    Attributes:
        grid: axis -> its values.
        settings: setting -> its default.
    """

    __name__: str
    __module__: str

    def __init__(
        self,
        function: Callable[..., Any],
        grid: Mapping[str, Iterable[Any]],
        skip: Callable[..., bool],
        condition: Callable[..., None],
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._skip, self._condition = function, skip, condition
        parameters = inspect.signature(function).parameters.values()
        axes = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        if sorted(axes) != sorted(grid):
            raise TypeError(f"grid: got {sorted(grid)}; {self.__name__} takes {sorted(axes)}")
        self.grid = {axis: tuple(grid[axis]) for axis in axes}
        self.settings = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def __reduce__(self) -> str:
        return self.__name__  # other processes import it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one point.

        Returns:
            what was measured: a dictionary, or a list of them.

        Raises:
            ValueError: arguments are out of their domains; it names each.
            TypeError: an axis is missing.
        """
        bound = inspect.signature(self._function).bind(*args, **kwargs)
        bound.apply_defaults()
        given = self._validate({name: [value] for name, value in bound.arguments.items()})
        point = {name: values[0] for name, values in given.items()}
        _call(self._condition, point)
        return self._function(**point)

    def sweep(
        self, *, jobs: int | None = None, record: Path | str | None = None, **changes: Any
    ) -> pd.DataFrame:
        """Run every point of the grid that the record does not hold yet.

        Args:
            jobs: points that run at a time, each on one thread; None leaves their number and
                their place to `joblib.parallel_config`. Neither changes a result.
            record: a file of JSON Lines, to which each point is appended when it is finished. A
                second call goes on after a kill, and more values of an axis extend the file.
            changes: for an axis its values, for a setting its value.

        Returns:
            one row a run: the point, then its measures; in the order of the grid.

        Raises:
            ValueError: arguments are out of their domains, or the record belongs to other
                settings, another function or another torch; it names each.
        """
        points, settings = self._resolve(changes)
        if record is None:
            rows = dict(self._run(points, settings, jobs))
        else:
            rows = self._run_into(Path(record), points, settings, jobs, changes)
        return pd.DataFrame([row for point in points for row in rows[_key(point)]])

    def read(self, record: Path | str) -> pd.DataFrame:
        """The table of a record; a UserWarning says so if its run is not finished.

        Raises:
            ValueError: the file is no record of this experiment.
        """
        header, rows = _read(Path(record), self.__name__, list(self.grid))
        if len(rows) < header["points"]:
            warnings.warn(
                f"record: {record} has {len(rows)} of {header['points']} points; "
                f"`{header['command']}` continues",
                stacklevel=2,
            )
        return pd.DataFrame([row for found in rows.values() for row in found])

    def _resolve(self, changes: Mapping[str, Any]) -> tuple[list[Point], Point]:
        """All points, and the settings that they share."""
        asked = self.grid | self.settings | dict(changes)
        given = self._validate({n: v if n in self.grid else [v] for n, v in asked.items()})
        settings = {name: given[name][0] for name in self.settings}
        grid = {axis: given[axis] for axis in self.grid}
        product = (dict(zip(grid, each, strict=True)) for each in itertools.product(*grid.values()))
        points = [p for p in product if not _call(self._skip, p)]
        if not points:
            raise ValueError(f"grid: {self.__name__} skips all of {grid}; name other values")
        for point in points:
            _call(self._condition, point | settings)
        return points, settings

    def _validate(self, given: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        """Values of the types that the function declares."""
        kinds = self._types
        valid: dict[str, tuple[Any, ...]] = {}
        wrong: list[str] = []
        for name, values in given.items():
            if name not in kinds:
                wrong.append(f"{name}: unknown; expected one of {', '.join(kinds)}")
            elif isinstance(values, str) or not isinstance(values, Iterable):
                wrong.append(f"{name}: got {values!r}; expected several values, as [{values!r}]")
            else:
                try:
                    valid[name] = kinds[name].validate_python(tuple(values))
                except ValidationError as error:
                    wrong += [f"{name}: got {e['input']!r}; {e['msg']}" for e in error.errors()]
                else:
                    if not valid[name]:
                        wrong.append(f"{name}: got no value; expected at least one")
        if wrong:
            raise ValueError("\n".join(wrong))
        return valid

    @functools.cached_property
    def _types(self) -> dict[str, TypeAdapter[Any]]:
        hints = typing.get_type_hints(self._function, include_extras=True)
        finite = ConfigDict(allow_inf_nan=False)
        return {
            name: TypeAdapter(tuple[hints[name], ...], config=finite)  # type: ignore[valid-type]
            for name in (*self.grid, *self.settings)
        }

    def _run(
        self, points: Sequence[Point], settings: Point, jobs: int | None, finished: int = 0
    ) -> Iterable[tuple[str, Rows]]:
        """Key and rows of each point, as they finish."""
        run = Parallel(n_jobs=jobs, batch_size=1, return_as="generator_unordered")
        calls = (delayed(_run_point)(self, point, settings) for point in points)
        with tqdm(total=finished + len(points), initial=finished, disable=None) as bar:
            for found in run(calls) if points else ():
                bar.update()
                yield found

    def _run_into(
        self,
        path: Path,
        points: list[Point],
        settings: Point,
        jobs: int | None,
        changes: Mapping[str, Any],
    ) -> dict[str, Rows]:
        """Rows of the points, read from the record or appended to it."""
        if not path.parent.is_dir():
            raise ValueError(f"record: got {path}; there is no such folder, make it first")
        header: dict[str, Any] = {
            "experiment": self.__name__,
            "settings": _to_json(settings),
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "processor": processor_name(),
            "command": self._command(path, changes),
            "source": self._digest(),
        }
        rows: dict[str, Rows] = {}
        if path.exists():
            before, rows = _read(path, self.__name__, list(self.grid))
            _check_same_run(path, before, header, running=any(_key(p) not in rows for p in points))
        missing = [point for point in points if _key(point) not in rows]
        if missing and not is_first_process():
            rows |= dict(self._run(missing, settings, jobs, finished=len(rows)))
        elif missing:
            header["points"] = len(rows) + len(missing)
            _write(path, header, rows)
            with path.open("a", encoding="utf-8") as file:
                for key, found in self._run(missing, settings, jobs, finished=len(rows)):
                    rows[key] = found
                    file.write(_line(found))
                    file.flush()
            in_order = {key: rows[key] for key in (*map(_key, points), *rows)}
            _write(path, header, in_order)
        return rows

    def _command(self, path: Path, changes: Mapping[str, Any]) -> str:
        words = ["python", "-m", "normlab.experiments", self.__name__]
        for name, value in changes.items():
            if isinstance(value, bool):
                words.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
            else:
                words += [f"--{name.replace('_', '-')}", *_words(value)]
        return shlex.join([*words, "--record", path.as_posix()])

    def _digest(self) -> str:
        """What tells one body of the function from another; docstring and grid are not in it."""
        source = textwrap.dedent(inspect.getsource(self._function))
        (function,) = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        statements = function.body[1:] if ast.get_docstring(function) else function.body
        body = "\n".join(source.splitlines()[statements[0].lineno - 1 :])
        return hashlib.sha256(body.encode()).hexdigest()[:16]


def is_first_process() -> bool:
    """Whether this is the process that writes, of those that torchrun may have started."""
    return int(os.environ.get("RANK", "0")) == 0


def _call(function: Callable[..., Any], arguments: Point) -> Any:
    """Call with those arguments that the function names."""
    return function(**{name: arguments[name] for name in inspect.signature(function).parameters})


def _run_point(run: Experiment, point: Point, settings: Point) -> tuple[str, Rows]:
    """Run one point on one thread, whatever process it is in."""
    with with_threads(1), threadpool_limits(1):
        measured = run._function(**point, **settings)
    several = measured if isinstance(measured, list) else [measured]
    return _key(point), [_to_json({**point, **measures}) for measures in several]


def _check_same_run(path: Path, before: Point, now: Point, *, running: bool) -> None:
    """Raise a ValueError if the record is not of the run that is asked for."""
    names = sorted({*before["settings"], *now["settings"]})
    other = [
        f"{name}: {before['settings'].get(name)!r} there, {now['settings'].get(name)!r} asked for"
        for name in names
        if before["settings"].get(name) != now["settings"].get(name)
    ]
    if before["source"] != now["source"] and (running or before["source"]):
        other.append(f"source: the body of {now['experiment']} has changed since")
    if running and before["versions"]["torch"] != now["versions"]["torch"]:
        other.append(f"torch: {before['versions']['torch']} there, {torch.__version__} here")
    if other:
        raise ValueError(
            f"record: {path} is of another run; name another file, or delete this one\n"
            + "\n".join(other)
        )


def _read(path: Path, name: str, axes: Sequence[str]) -> tuple[Point, dict[str, Rows]]:
    """The header of a record, and the rows of each point; a torn last line is left out."""
    whole = path.read_text(encoding="utf-8").split("\n")[:-1]
    try:
        header, *rest = map(json.loads, whole)
        found = header["experiment"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"record: {path} is no record of an experiment; delete it") from None
    if found != name:
        raise ValueError(f"record: {path} is of {found}, not of {name}")
    rows: dict[str, Rows] = {}
    for each in rest:
        several = each if isinstance(each, list) else [each]
        rows[_key({axis: several[0][axis] for axis in axes})] = several
    return header, rows


def _write(path: Path, header: Point, rows: Mapping[str, Rows]) -> None:
    """Write a record whole or not at all: an interrupted call leaves the old file."""
    beside = path.with_name(f".{path.name}.part")
    lines = [json.dumps(header, ensure_ascii=False) + "\n", *map(_line, rows.values())]
    beside.write_text("".join(lines), encoding="utf-8")
    os.replace(beside, path)


def _line(rows: Rows) -> str:
    return json.dumps(rows[0] if len(rows) == 1 else rows, allow_nan=False) + "\n"


def _key(point: Point) -> str:
    return json.dumps(_to_json(point), sort_keys=True)


def _to_json(value: Any) -> Any:
    """What JSON holds: lists for tuples, and None for a number that is not finite."""
    return to_jsonable_python(value, inf_nan_mode="null")


def _words(value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [str(value)]
    return [word for each in value for word in _words(each)]
