"""Layer norm and RMS norm on a GPU, a program of Triton for each row: the extra `normlab[gpu]`.

It has no kernel for the other three norms, and says so.
"""

from __future__ import annotations

import functools
import importlib

from normlab.kernels import calls
from normlab.kernels.differentiation import Kernels


@functools.cache
def kernels() -> Kernels:
    """What this back end knows.

    Raises:
        ImportError: Triton is not installed, or finds no compiler or driver.
    """
    try:
        module = importlib.import_module("normlab.kernels.triton_programs")
    except Exception as error:  # missing, or unable to find a compiler or a driver
        raise ImportError(
            f"Triton cannot be imported here: {type(error).__name__}: {error}. Install it with "
            "pip install 'normlab[gpu]'; normlab.kernels computes without it"
        ) from error
    return Kernels("triton", "cuda", module, largest=module.LARGEST)


layer_norm = calls.strict(calls.layer_norm, kernels)
rms_norm = calls.strict(calls.rms_norm, kernels)
batch_norm = calls.strict(calls.batch_norm, kernels)
group_norm = calls.strict(calls.group_norm, kernels)
instance_norm = calls.strict(calls.instance_norm, kernels)
