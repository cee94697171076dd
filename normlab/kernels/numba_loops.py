"""The norms as loops over vectors, compiled by numba at the first call: `normlab[kernels]`."""

from __future__ import annotations

import functools
import importlib
import importlib.util

from normlab.kernels import calls
from normlab.kernels.differentiation import Kernels

_OTHERWISE = "normlab.kernels calls the layers without it"


@functools.cache
def kernels() -> Kernels:
    """What this back end knows, once a loop was compiled and gave the right answer here.

    Raises:
        ModuleNotFoundError: numba is not installed.
        ImportError: numba does not work on this machine.
    """
    if importlib.util.find_spec("numba") is None:
        raise ModuleNotFoundError(
            "numba is not installed; install it with pip install 'normlab[kernels]'. " + _OTHERWISE
        )
    try:
        module = importlib.import_module("normlab.kernels.vectorized")
        module.try_compiler()
    except Exception as error:  # an installed numba may fail in many ways
        raise ImportError(
            f"numba is installed and does not work here: {type(error).__name__}: {error}. "
            f"Install another version of it. {_OTHERWISE}"
        ) from error
    note = f"its compiled loops are in {module.FOLDER}, which may be deleted. {_OTHERWISE}"
    return Kernels("numba", "cpu", module, module.DTYPES, note=note)


layer_norm = calls.strict(calls.layer_norm, kernels)
rms_norm = calls.strict(calls.rms_norm, kernels)
batch_norm = calls.strict(calls.batch_norm, kernels)
group_norm = calls.strict(calls.group_norm, kernels)
instance_norm = calls.strict(calls.instance_norm, kernels)
