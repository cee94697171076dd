"""What a setting of an experiment may be, told by its type, and a sentence for what it is not."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal


@dataclass(frozen=True)
class Bounds:
    """An interval of numbers."""

    lowest: float  #: belongs to the interval
    highest: float  #: belongs to the interval
    words: str  #: how an error calls it


def at_least(lowest: int) -> Bounds:
    """Bounds of a number that has a smallest value: `Annotated[int, at_least(3)]`."""
    return Bounds(lowest, math.inf, f"{lowest} or more")


Count = Annotated[int, at_least(1)]
Several = Annotated[int, at_least(2)]
Index = Annotated[int, at_least(0)]
Positive = Annotated[float, Bounds(math.nextafter(0, 1), math.inf, "a positive number")]
NotNegative = Annotated[float, Bounds(0, math.inf, "a number of at least 0")]
Share = Annotated[float, Bounds(0, 1, "a number from 0 to 1")]


def check_settings(config: Any) -> None:
    """Raise a ValueError that names the field if a value does not fit its type.

    Types give choices and bounds, and no tuple may be empty.

    Example:
        >>> from normlab.experiments.motivation.signal_at_init import Config
        >>> check_settings(Config(width=-1))
        Traceback (most recent call last):
        ValueError: width: got -1; expected 1 or more
    """
    hints = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        wrong = _find_wrong(getattr(config, field.name), hints[field.name])
        if wrong:
            raise ValueError(f"{field.name}: got {wrong[0]!r}; expected {wrong[1]}")


def _find_wrong(value: Any, hint: Any) -> tuple[Any, str] | None:
    """What does not fit a type, the value or an item of it, and what the type demands."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return _find_wrong_item(value, arguments)
    if origin is Annotated:
        bounds = next(a for a in arguments if isinstance(a, Bounds))
        right = not _find_wrong(value, arguments[0]) and bounds.lowest <= value <= bounds.highest
        words = bounds.words
    elif origin is Literal:
        right, words = value in arguments, f"one of {', '.join(map(repr, arguments))}"
    elif hint is float:
        right, words = isinstance(value, int | float) and math.isfinite(value), "a finite number"
    elif hint is int:
        right, words = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    else:
        return None
    return None if right else (value, words)


def _find_wrong_item(value: Any, hints: tuple[Any, ...]) -> tuple[Any, str] | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value, "several values"
    if not value:
        return value, "at least one value"
    if hints[-1] is Ellipsis:
        hints = hints[:1] * len(value)
    if len(hints) != len(value):
        return value, f"{len(hints)} values"
    found = (_find_wrong(v, h) for v, h in zip(value, hints, strict=True))
    return next(filter(None, found), None)


def check_at_most(config: Any, small: str, large: str) -> None:
    """Raise a ValueError if the field `small` is above the field `large`."""
    value, limit = getattr(config, small), getattr(config, large)
    if value > limit:
        raise ValueError(f"{small}: got {value}; expected at most {limit}, the {large}")


def check_divides(config: Any, part: str, whole: str) -> None:
    """Raise a ValueError if the field `part` does not divide the field `whole`."""
    value, total = getattr(config, part), getattr(config, whole)
    if value < 1 or total % value:
        raise ValueError(f"{part}: got {value}; expected a divisor of {whole} {total}")


def check_one_for_each(config: Any, values: str, of: str) -> None:
    """Raise a ValueError if the field `values` has not one value for each of the field `of`."""
    count, expected = len(getattr(config, values)), len(getattr(config, of))
    if count != expected:
        raise ValueError(f"{values}: got {count} for {expected} {of}; expected one for each")
