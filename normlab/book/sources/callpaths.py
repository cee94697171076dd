"""Which functions lead to a kernel: errors of torch can print the C++ that was running."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import groupby

from normlab.book.sources.symbols import find_compiled
from normlab.book.sources.wheel import Location, MissingInTorchError, path_in_repository

_LEAF = "x = torch.randn(4, 6, 2, requires_grad=True)"
# The saved input is swapped for one of a dtype that the kernel refuses, to fail inside it.
_SWAP = "x.data = x.data.cfloat(); y.backward(torch.randn(4, 6, 2))"

# Calls that fail as deep inside as possible: no kernel takes these dtypes.
PROVOCATIONS: dict[str, str] = {
    "layer_norm": "F.layer_norm(torch.ones(4, 6, dtype=torch.long), (6,))",
    "layer_norm, backward": f"{_LEAF}; y = F.layer_norm(x, (2,)); {_SWAP}",
    "rms_norm": "F.rms_norm(torch.ones(4, 6, dtype=torch.long), (6,))",
    "batch_norm": "F.batch_norm(torch.ones(4, 6).long(), None, None, None, None, True)",
    "batch_norm, backward": f"{_LEAF}; y = F.batch_norm(x, *4 * [None], True); {_SWAP}",
    "group_norm": "F.group_norm(torch.ones(4, 6, 2, dtype=torch.long), 3)",
}

_PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.nn.functional as F
torch.set_num_threads(1)
for statements in json.loads(sys.argv[1]):
    try:
        exec(statements, {"torch": torch, "F": F})
        print(json.dumps(None))
    except RuntimeError as error:
        print(json.dumps(str(error)))
"""
_RAISED = re.compile(r"Exception raised from (.+) at (.+?):(\d+) \(most recent call first\)")
_FRAME = re.compile(r"^(?:#\d+ |frame #\d+: )(.+?)(?: from \S+:\d+| \(0x.*)?$", re.MULTILINE)
# Wrappers around each call; the functions that they call follow them.
_WRAPPERS = re.compile(
    r"std::|c10::|torch::autograd::(?:Engine|Node|python)::|.*_apply_functional$"
)


@dataclass(frozen=True)
class CallPath:
    """How torch came to an error in C++: what it says, and the line of C++ that raised it.

    `functions` were running, outermost first, without namespaces of no name, templates, arguments
    and the dispatcher's wrappers.
    """

    message: str
    location: Location
    functions: tuple[str, ...]


def trace_errors(*programs: str) -> tuple[CallPath, ...]:
    """Run programs that fail in C++, in one process of their own, and read how they got there.

    The programs are Python statements that may use `torch` and `F`; :data:`PROVOCATIONS` has some.

    Raises:
        ValueError: a program fails otherwise, or not at all.
        MissingInTorchError: this build does not print its C++ functions.
    """
    errors = _run_failing(programs)
    return tuple(_read_path(*each) for each in zip(programs, errors, strict=True))


def read_error(program: str) -> str:
    """Give the error of a program as :func:`trace_errors` takes, as it stands.

    Raises:
        ValueError: the program fails otherwise, or not at all.
    """
    (error,) = _run_failing((program,))
    if error is None:
        raise ValueError(f"program: {program!r} did not fail, so there is nothing to read")
    return error


def _run_failing(programs: tuple[str, ...]) -> list[str | None]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(programs)],
        env={**os.environ, "TORCH_SHOW_CPP_STACKTRACES": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
        raise ValueError(f"programs: one did not end in an error of torch, but in: {last}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _read_path(program: str, error: str | None) -> CallPath:
    if error is None:
        raise ValueError(f"programs: {program!r} did not fail, so there is nothing to trace")
    raised = _RAISED.search(error)
    frames = [_short_name(frame) for frame in _FRAME.findall(error)]
    # A function and what the compiler split off from it are two frames with one name.
    functions = [f for f, _ in groupby(frames) if "::" in f and not _WRAPPERS.match(f)]
    if raised is None or not functions:
        remedy = "builds for Linux print them; on others the path cannot be read"
        raise MissingInTorchError("C++ functions in its errors", remedy)
    location = Location(path_in_repository(raised[2]), int(raised[3]), raised[1])
    return CallPath(error.strip().partition("\n")[0], location, tuple(reversed(functions)))


def _short_name(signature: str) -> str:
    """The name in a C++ signature, without result, arguments, templates and empty namespaces."""
    text = signature.replace("(anonymous namespace)::", "")
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text.partition("(")[0].strip().rpartition(" ")[2]


def describe_path(path: CallPath) -> tuple[tuple[str, str, str], ...]:
    """Say of each function of a path where it stands and what it is for: (function, where, kind).

    `kind` is "binding", "dispatcher", "autograd" or "function"; `where` is a source file for a
    function, as far as the library keeps it.
    """
    steps = []
    for function in path.functions:
        name = function.rpartition("::")[2]
        if "::_ops::" in function:
            kind, where = "dispatcher", "generated; looks up the function"
        elif name.startswith("THPVariable_"):
            kind, where = "binding", "generated; from Python to C++"
        elif function.startswith("torch::autograd::"):
            kind, where = "autograd", "generated from derivatives.yaml"
        else:
            files = {re.sub(r"\.[A-Z0-9]+\.cpp$", "", f) for f in find_compiled(name)[name].files}
            kind, where = "function", ", ".join(sorted(files)) or "file not kept"
        short = function.removeprefix("at::_ops::").removeprefix("at::native::")
        steps.append((short.rpartition("autograd::")[2], where, kind))
    return tuple(steps)
