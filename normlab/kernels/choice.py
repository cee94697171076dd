"""Which back end computes the norms: a setting of the process, and what can be had here."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import warnings
from types import ModuleType

NAMES = ("auto", "composition", "chunked", "numba")
# elements; below, the Python of the chunked back end takes longer than that of the composition
SMALL = 4096
_MODULES = {"chunked": "normlab.kernels.chunked", "numba": "normlab.kernels.vectorized"}


class _State:
    """What was asked for, the module that it means, and why a back end cannot be had."""

    asked = "auto"
    module: ModuleType | None = None
    resolved = False
    broken: str | None = None  # why numba is here and does not work


def _from_environment() -> str:
    name = os.environ.get("NORMLAB_KERNELS", "auto")
    if name not in NAMES:
        raise ValueError(f"NORMLAB_KERNELS: got {name!r}; expected one of {', '.join(NAMES)}")
    return name


def _has_numba() -> bool:
    return _State.broken is None and importlib.util.find_spec("numba") is not None


def available() -> tuple[str, ...]:
    """Names of the back ends that work here, the slowest first.

    Returns:
        "composition" and "chunked", and "numba" where it is installed and was not found broken.

    Example:
        >>> available()[:2]
        ('composition', 'chunked')
    """
    return ("composition", "chunked", *(("numba",) if _has_numba() else ()))


class use:
    """Choose what computes the five norms of `normlab.layers`, until the next choice.

    Args:
        name: "composition", the operations of torch that the layers are written in; "chunked",
            the same in pieces that fit the cache; "numba", compiled loops; "auto", numba where it
            can be imported and chunked elsewhere, but the composition there for fewer than 4096
            elements, where it is the faster. The environment variable `NORMLAB_KERNELS`
            holds the choice at the start, else it is "auto".

    Raises:
        ValueError: `name` is none of these.
        ImportError: "numba" was asked for and cannot be imported.

    Conventions:
        the choice belongs to the process, not to a thread. As a context manager it is taken back
        at the end; inside a compiled function this needs torch 2.13 or newer. What a kernel does
        not compute (other dtypes and devices, `torch.func`, forward-mode derivatives, tensor
        subclasses, empty input) goes to the composition under every choice.

    Example:
        >>> with use("composition"):
        ...     chosen()
        'composition'
    """

    def __init__(self, name: str) -> None:
        if name not in NAMES:
            raise ValueError(f"name: got {name!r}; expected one of {', '.join(NAMES)}")
        if name == "numba" and not _has_numba():
            reason = _State.broken or "numba is not installed"
            raise ImportError(
                f"name: got 'numba', and {reason}; install it with pip install "
                "'normlab[kernels]', or use 'chunked'"
            )
        self._before = _State.asked
        _set(name)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        _set(self._before)


def _set(name: str) -> None:
    _State.asked = name
    _State.resolved = False


_set(_from_environment())


def wanted() -> bool:
    """Whether a kernel was asked for; nothing is imported to know, so that this can be traced."""
    return _State.asked != "composition"


def chosen() -> str:
    """The back end that the next call gets: "composition", "chunked" or "numba"."""
    if _State.asked == "auto":
        return "numba" if _has_numba() else "chunked"
    if _State.asked == "numba" and not _has_numba():
        return "chunked"
    return _State.asked


def backend() -> ModuleType | None:
    """The module that computes, or None for the composition."""
    if not _State.resolved:
        name = chosen()
        try:
            _State.module = importlib.import_module(_MODULES[name]) if name in _MODULES else None
        except Exception as error:  # an installed numba may fail in many ways
            give_up(f"it cannot be imported here: {error}")
        _State.resolved = True
    return _State.module


def is_too_small(count: int) -> bool:
    """Whether "auto" means the composition for so few elements, having found no numba."""
    if count >= SMALL or _State.asked != "auto":
        return False
    return getattr(backend(), "__name__", None) == _MODULES["chunked"]


@functools.cache
def gpu_backend() -> ModuleType | None:
    """The Triton kernels, or None where Triton cannot be imported."""
    try:
        return importlib.import_module("normlab.kernels.triton")
    except Exception:  # missing, or unable to find a compiler or a driver
        return None


def other_backend() -> ModuleType:
    """The one that needs nothing but torch."""
    return importlib.import_module(_MODULES["chunked"])


def give_up(reason: str) -> None:
    """Compute with the chunked back end from now on, and say why."""
    _State.broken = f"numba does not work: {reason}"
    _State.module = other_backend()
    _State.resolved = True
    warnings.warn(f"{_State.broken}. normlab computes with 'chunked'", RuntimeWarning, stacklevel=3)
