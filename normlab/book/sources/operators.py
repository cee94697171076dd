"""What torch declares about an operator: its schema, its kernels, its derivative.

Two lists ship in the wheel, `native_functions.yaml` and `derivatives.yaml`. The dispatcher knows a
third thing, which kernel it would call for each key, in this build.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from normlab.book.sources.wheel import (
    Location,
    MissingInTorchError,
    path_in_repository,
    read_packaged,
)

# File in torchgen/packaged -> path in the repository, and what an entry starts with.
_FUNCTIONS = ("ATen/native/native_functions.yaml", "aten/src/ATen/native/native_functions.yaml")
_DERIVATIVES = ("autograd/derivatives.yaml", "tools/autograd/derivatives.yaml")

_REGISTERED = re.compile(r"^(\w+)[^:]*: (?:fallthrough )?registered at (.+):(\d+) \[(.+)\]$")


@dataclass(frozen=True)
class Operator:
    """An entry of `native_functions.yaml`.

    `kernels` leads from a dispatch key to a C++ function; it is empty for an operator that is one
    function for all keys, called as the operator is.
    """

    schema: str
    kernels: dict[str, str]
    location: Location

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments."""
        inside = self.schema.partition("(")[2].partition(") ->")[0]
        return tuple(re.findall(r"(\w+)(?:=[^,]*)?(?:,|$)", inside))


@dataclass(frozen=True)
class Derivative:
    """An entry of `derivatives.yaml`: C++ formulas by the names of arguments or results."""

    formulas: dict[str, str]
    location: Location

    def functions(self, names: str) -> tuple[str, ...]:
        """Functions that the formula of `names` calls, in order, each once.

        Raises:
            KeyError: there is no formula for `names`.
        """
        called = re.findall(r"(?<![.\w:])([a-z_]\w*)\(", self.formulas[names])
        return tuple(dict.fromkeys(called))


@dataclass(frozen=True)
class Registration:
    """What the dispatcher holds for one key.

    `file` registers it, and lies in `build` where it is generated; `kind` is "kernel", or why the
    kernel of another key serves.
    """

    file: str
    kind: str


def read_operator(name: str) -> Operator:
    """Schema and kernels of an operator, with its overload where it has one.

    Raises:
        MissingInTorchError: no operator has this name.

    Example:
        >>> read_operator("layer_norm").kernels
        {'CompositeImplicitAutograd': 'layer_norm_symint'}
    """
    fields, location = _read_entry(*_FUNCTIONS, "func", name)
    kernels = {
        key.strip(): kernel
        for keys, kernel in re.findall(r"^    (\w[\w, ]*): (\w+)", fields.get("dispatch", ""), re.M)
        for key in keys.split(",")
    }
    return Operator(fields["func"], kernels, location)


def read_derivative(name: str) -> Derivative:
    """Derivative of an operator, with its overload where it has one.

    Raises:
        MissingInTorchError: the operator has no entry, so its derivative is that of the operators
            that it calls, or it has none.

    Example:
        >>> read_derivative("native_layer_norm").functions("result0")
        ('layer_norm_jvp',)
    """
    fields, location = _read_entry(*_DERIVATIVES, "name", name)
    del fields["name"]
    return Derivative(fields, location)


def read_dispatch_table(name: str) -> dict[str, Registration]:
    """Which registration the dispatcher uses for each key, in this build of torch.

    Raises:
        MissingInTorchError: no operator has this name, or torch does not show its tables.

    Example:
        >>> read_dispatch_table("native_layer_norm")["CPU"].kind
        'kernel'
    """
    try:
        table = torch._C._dispatch_dump_table(f"aten::{name}")
    except (AttributeError, RuntimeError):
        raise MissingInTorchError(f"dispatch table of {name!r}", _SPELLING) from None
    matches = filter(None, map(_REGISTERED.match, table.splitlines()))
    found = {m[1]: Registration(path_in_repository(m[2]), m[4]) for m in matches}
    if not found:
        raise MissingInTorchError(f"dispatch table of {name!r}", _SPELLING)
    return found


def run_default_kernel(name: str, *arguments: Any) -> Any:
    """Run the kernel that serves backends without one of their own, on CPU tensors.

    The arguments are all those of the operator, in order.

    Raises:
        MissingInTorchError: the operator has no such kernel.
    """
    keys = [
        getattr(torch._C.DispatchKey, key)
        for key, entry in read_dispatch_table(name).items()
        if entry.kind == "default backend kernel" and key != "Undefined"
        if hasattr(torch._C.DispatchKey, key)
    ]
    if not keys:
        raise MissingInTorchError(f"default kernel of {name!r}", "its kernels: read_operator(name)")
    operator = getattr(torch.ops.aten, name).default
    with torch.no_grad():
        return operator.redispatch(torch._C.DispatchKeySet(keys[0]), *arguments)


_SPELLING = "check the spelling against torch.ops.aten"


@cache
def _read_lines(path: str) -> tuple[str, ...]:
    return tuple(read_packaged(path).splitlines())


def _read_entry(
    path: str, in_repository: str, key: str, name: str
) -> tuple[dict[str, str], Location]:
    """Fields of one entry of a list, each as text, and where the entry stands.

    The lists have two levels of indentation and no other YAML in them, so they are read without a
    parser, which would take a second.
    """
    lines = _read_lines(path)
    opening = f"- {key}: {name}("
    number = next((i for i, line in enumerate(lines) if line.startswith(opening)), None)
    if number is None:
        raise MissingInTorchError(f"{name!r} in {in_repository}", _SPELLING)
    fields: dict[str, str] = {}
    current = key
    for line in ("  " + lines[number][2:], *lines[number + 1 :]):
        if line and not line.startswith((" ", "#")):
            break
        if field := re.match(r"  (\w[\w, ]*): ?(.*)", line):
            current, fields[field[1]] = field[1], field[2].strip('"')
        elif line.strip() and not line.lstrip().startswith("#"):
            fields[current] += f"\n{line}"
    return fields, Location(in_repository, number + 1, name)
