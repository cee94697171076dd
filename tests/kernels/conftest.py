"""Tests of the kernels run once for each back end, as if it were the fastest here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from normlab import kernels
from normlab.kernels import functions

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a back end the fastest, for inputs of any size."""

    def choose(name: str) -> None:
        known = kernels.backends()[name].kernels()._replace(smallest=0)
        here = (known.device, known.dtypes)
        monkeypatch.setattr(
            functions, "fastest", lambda d, t: known if d == here[0] and t in here[1] else None
        )

    return choose


@pytest.fixture(params=["chunked", "numba"])
def backend(request: pytest.FixtureRequest, choose: Callable[[str], None]) -> str:
    choose(request.param)
    return request.param


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
