"""What holds for the answer of every exercise, whatever it asks.

An answer returns a value: it does not only print it. It leaves its arguments as they were. It does
not call what the exercise forbids. It may raise whatever it likes, `SystemExit` too: it is told.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normlab.norms import NORMS

UNANSWERED = "not answered yet"
PRINTED = "it prints a value and returns None; the check reads what is returned: write return"
_WIDE = {
    "float64",
    "double",
    "longdouble",
    "float128",
    "float",
    "fsum",
    "f8",
    "<f8",
    "d",
    "tolist",
    "cov",
}
#: what a check may forbid, besides the name of a norm -> what is said
FORBIDDEN = {
    "autograd": "it calls torch's autograd; the exercise asks for the gradient by hand",
    "float64": "it computes in float64 or comes through it, as float, tolist and np.cov do; the "
    "exercise asks for an array of the input's dtype",
}


def forbidden_sentence(name: str) -> str:
    """What is said of an answer that calls what is forbidden."""
    return FORBIDDEN.get(
        name, f"it calls {name}, which does it all; the exercise asks for its parts"
    )


def _constants(code: CodeType) -> Iterator[object]:
    """Names and constants of a function and of the functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        yield from _constants(constant) if isinstance(constant, CodeType) else [constant]


def _is_wide(code: CodeType) -> bool:
    return any(isinstance(part, str) and part in _WIDE for part in _constants(code))


@contextlib.contextmanager
def note_calls(function: Callable[..., Any], called: set[str]) -> Iterator[None]:
    """Put into `called` which norms of torch or of this package are called, and the like.

    Args:
        function: an answer; of functions beside it is asked whether they name a wide dtype.
        called: gets "autograd", "float64" and names of norms.
    """
    own = getattr(inspect.unwrap(function), "__globals__", None)

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
            if frame.f_globals is own and _is_wide(frame.f_code):
                called.add("float64")
            if module.startswith("torch.autograd") and name in (
                "_engine_run_backward",
                "make_dual",
            ):
                called.add("autograd")
            if not module.startswith(("torch.", "normlab.")):
                return
        elif event == "c_call":
            name = getattr(arg, "__name__", "")
        else:
            return
        called.update(norm for norm in NORMS if norm in name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


class _Echo(io.TextIOBase):
    """Passes on what is printed, and knows whether something was."""

    def __init__(self, to: Any) -> None:
        self.to, self.heard = to, False

    def write(self, text: str) -> int:
        self.heard |= bool(text.strip())
        self.to.write(text)
        return len(text)

    def flush(self) -> None:
        self.to.flush()


def _copy(value: Any) -> Any:
    """A copy of what can be overwritten, and all else itself."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    return list(map(_copy, value)) if isinstance(value, list | tuple) else value


def _is_same(before: Any, after: Any) -> bool:
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_is_same, before, after))
    if not isinstance(before, Tensor | np.ndarray):
        return before is after
    after = after.detach() if isinstance(after, Tensor) else after
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    return bool(((before == after) | ((before != before) & (after != after))).all())


def _named(function: Callable[..., Any], args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
    """The arguments by the function's own names; by their places where they do not fit."""
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        yield from ((f"argument {place}", value) for place, value in enumerate(args, start=1))
        yield from kwargs.items()
        return
    for name, value in bound.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((f"{name}[{place}]", one) for place, one in enumerate(value))
        else:
            yield name, value


def _describe(name: str, value: Any) -> str:
    if getattr(value, "shape", ()):
        dtype = str(value.dtype).removeprefix("torch.")
        half = f" and dtype {dtype}" if dtype in ("float16", "bfloat16") else ""
        return f"{name} of shape {tuple(value.shape)}{half}"
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str | tuple | list):
        return f"{name} = {value!r}"
    return f"{name} ({type(value).__name__})"


class Broken(Exception):
    """An answer broke a rule of every exercise; the sentence is its `broke`."""


class Answer:
    """A reader's function as graders call it: the first call that came to nothing is noted.

    Args:
        function: the reader's.
        forbids: names of norms, "autograd" or "float64".
    """

    def __init__(self, function: Callable[..., Any], forbids: frozenset[str] = frozenset()) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.forbids = forbids
        self.calls = 0
        self.called: set[str] = set()  #: what it called, where something is forbidden
        self.error: BaseException | None = None  #: of the first call that came to nothing
        self.verdict = ""  #: what is said of it
        self.broke = ""  #: what is said of a call that broke a rule, which goes before all else

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns; an exception where that is nothing."""
        return self.updating((), *args, **kwargs)

    def updating(self, places: tuple[int, ...], *args: Any, **kwargs: Any) -> Any:
        """The same for a function that is to change the arguments at these places."""
        given = [*args, *kwargs.values()]
        before = [value if at in places else _copy(value) for at, value in enumerate(given)]
        said = self.run(*args, **kwargs)
        overwritten = [not _is_same(*pair) for pair in zip(before, given, strict=True)]
        if any(overwritten):
            names = [name for name, _ in _named(self.function, args, kwargs)]
            name = names[overwritten.index(True)] if len(names) == len(given) else "an argument"
            self._break(f"it overwrites {name}: work on a copy, without +=, out= or x[...] =")
        if said is None:
            error = TypeError("it returned None")
            self._note(error, str(error), args, kwargs)
            raise error
        return said

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The same for a function that changes what it is given and may return nothing."""
        self.calls += 1
        echo = _Echo(sys.stdout)
        watch = note_calls(self.function, self.called) if self.forbids else contextlib.nullcontext()
        try:
            with contextlib.redirect_stdout(echo), watch:
                said = self.function(*args, **kwargs)
        except (Exception, SystemExit) as error:  # a reader's function may fail in any way; say how
            what = f"it raised {type(error).__name__}: {error}".rstrip(": ")
            self._note(error, what, args, kwargs)
            self._break_if_forbidden()
            if isinstance(error, SystemExit):
                raise RuntimeError(f"SystemExit: {error}") from error
            raise
        if said is None and echo.heard:
            self._break(PRINTED)
        self._break_if_forbidden()
        return said

    def describe(self, args: Any, kwargs: Any) -> str:
        """The arguments of a call by the function's own names, as the end of a sentence."""
        given = ", ".join(_describe(*pair) for pair in _named(self.function, args, kwargs))
        return f", for {given}" if given else ""

    def _break_if_forbidden(self) -> None:
        if found := self.forbids & self.called:
            self._break(forbidden_sentence(min(found)))

    def _break(self, sentence: str) -> None:
        self.broke = self.broke or sentence
        raise Broken(sentence)

    def _note(self, error: BaseException, what: str, args: Any, kwargs: Any) -> None:
        if self.verdict:
            return
        self.error = error
        self.verdict = f"wrong: {what}{self.describe(args, kwargs)}"
        if self.calls == 1 and str(error) == what:
            self.verdict = UNANSWERED
