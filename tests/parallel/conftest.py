"""Pools of processes, and what they run importable without packages of tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from normlab.parallel import Processes


@pytest.fixture(scope="package")
def two():
    with Processes(2, time_limit=60, patience=20) as processes:
        yield processes


@pytest.fixture(scope="package")
def four():
    with Processes(4, time_limit=60, patience=20) as processes:
        yield processes
