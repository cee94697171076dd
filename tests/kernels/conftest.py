"""Every test of the kernels runs once for each back end, and leaves the choice as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from normlab import kernels

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["chunked", "numba"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with kernels.use(request.param):
        yield request.param


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
