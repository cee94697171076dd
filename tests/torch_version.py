"""The version of torch here; where torch changed its mind, a test says since which version."""

from importlib.metadata import version

import pytest
import torch

VERSION = tuple(int(part) for part in version("torch").split(".")[:2])


def script(module):
    """The module as TorchScript, which warns of its end since 2.14."""
    return _to_torch_script("script", module)


def trace(module, x):
    """The module as TorchScript from one call, with the same warning."""
    return _to_torch_script("trace", module, x)


def _to_torch_script(name, *arguments):
    function = getattr(torch.jit, name)
    if VERSION < (2, 14):
        return function(*arguments)
    with pytest.warns(FutureWarning, match=rf"`torch.jit.{name}\w*` is deprecated"):
        return function(*arguments)
