"""The version of torch here; where torch changed its mind, a test says since which version."""

from importlib.metadata import version

import pytest
import torch

VERSION = tuple(int(part) for part in version("torch").split(".")[:2])


def script(module):
    """The module as TorchScript, which warns of its end since 2.14."""
    if VERSION < (2, 14):
        return torch.jit.script(module)
    with pytest.warns(FutureWarning, match="`torch.jit.script` is deprecated"):
        return torch.jit.script(module)
