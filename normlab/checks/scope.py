"""Which inputs and which checks a layer is asked to stand, where not all of them."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class Scope:
    """What is checked."""

    dtype: torch.dtype = torch.float32  #: of the inputs whose values and gradients are compared
    #: 16-bit dtypes that are tried besides
    half: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16)
    backward: bool = True  #: compare gradients, too
    empty: bool = True  #: give inputs without rows
    batch_of_one: bool = True  #: give a single sample
    double: bool = True  #: give float64 inputs, too

    @classmethod
    def of(
        cls,
        dtype: Any,
        dtypes: Collection[Any] | None,
        forward_only: bool,
        empty: bool,
        batch_of_one: bool,
    ) -> Scope:
        """From the arguments of :func:`normlab.checks.check_layer`.

        Raises:
            ValueError: a dtype is none of those that are tried.
        """
        main = torch.float32 if dtype is None else _named("dtype", dtype)
        half = cls.half if main == torch.float32 else ()
        if dtypes is not None:
            chosen = [_named("dtypes", d) for d in dtypes]
            half = tuple(d for d in half if d in chosen)
        return cls(main, half, not forward_only, empty, batch_of_one, dtypes is None)


def _named(argument: str, dtype: Any) -> torch.dtype:
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        near = difflib.get_close_matches(name, _DTYPES, 1, 0.5)
        hint = f". Did you mean {near[0]}?" if near else ""
        raise ValueError(f"{argument}: got {name!r}; expected one of {', '.join(_DTYPES)}{hint}")
    return _DTYPES[name]
