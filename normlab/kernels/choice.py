"""Which back ends run on this machine, and which of them knows a device and a dtype."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from types import ModuleType

import torch

from normlab.kernels import numba_loops, triton_rows
from normlab.kernels.differentiation import Kernels


@functools.cache
def _kernels(module: ModuleType) -> Kernels | None:
    """What a back end knows, if it works here; one that is installed and broken is named once."""
    try:
        found: Kernels = module.kernels()
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        if module is numba_loops:
            warnings.warn(str(error), RuntimeWarning, stacklevel=4)
        return None
    return found


def backends() -> Mapping[str, ModuleType]:
    """The back ends that can run here, the fastest first.

    Returns:
        name -> a module with the five norms, which raise NotImplementedError for what they do not
        know: "triton" where there is a GPU, and "numba" where it is installed.

    Example:
        >>> numba = backends()["numba"]
        >>> numba.rms_norm(torch.tensor([[3.0, 4.0]]), (2,), eps=0.0)
        tensor([[0.8485, 1.1314]])
    """
    found = {"triton": triton_rows} if torch.cuda.is_available() else {}
    found["numba"] = numba_loops
    return {name: module for name, module in found.items() if _kernels(module)}


@functools.cache
def find(device: str, dtype: torch.dtype) -> Kernels | None:
    """The kernels on this machine that know a type of device and a dtype."""
    module = {"cuda": triton_rows, "cpu": numba_loops}.get(device)
    kernels = None if module is None else _kernels(module)
    return kernels if kernels is not None and dtype in kernels.dtypes else None
