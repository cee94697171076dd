"""How loops are compiled and kept: in a folder named after the content of the sources.

numba notices a change in a function's own file only. Here the functions of one file are compiled
into those of another, so that the name of the folder stands for all files.
"""

from __future__ import annotations

import hashlib
import os
import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit
from numba.core import codegen, config

# A division by zero gives what it gives in torch, and costs no test.
inlined = njit(forceinline=True, error_model="numpy")


def folder_of(sources: Path) -> str:
    """The folder of what was compiled from these sources."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(sources.glob("*.py")):
        digest.update(path.read_bytes())
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given is None:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        given = os.path.join(base, "normlab")
    return os.path.join(given, f"kernels-{digest.hexdigest()[:16]}")


FOLDER = folder_of(Path(__file__).parent)


def compiled(function: Callable[..., None]) -> Any:
    """Compile at the first call, without holding the interpreter, and keep the result on disk."""
    before = config.CACHE_DIR
    config.CACHE_DIR = FOLDER
    try:
        return njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError as error:  # no folder can be written
        warnings.warn(
            f"compiled kernels cannot be kept, so that each process compiles its own: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return njit(nogil=True, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before


def converts_halves() -> bool:
    """Whether the processor that is compiled for converts float16 to float32 and back.

    Where it does not, LLVM calls functions that numba does not link, and the process ends.
    """
    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686"):
        return platform.machine().lower() in ("aarch64", "arm64")
    features = config.CPU_FEATURES
    if features is None:
        features = codegen.get_host_cpu_features()
    return "+f16c" in features.split(",")
