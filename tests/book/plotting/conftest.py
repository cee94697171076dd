"""Every test of figures draws without a screen and leaves pyplot as it found it."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib

matplotlib.use("Agg")

import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure


@pytest.fixture
def ax() -> Axes:
    """Axes of a figure that pyplot does not know."""
    return Figure(figsize=(6.4, 3.6)).add_subplot()


@pytest.fixture(autouse=True)
def pyplot_is_left_alone() -> Iterator[None]:
    figures = plt.get_fignums()
    with plt.rc_context():
        matplotlib.rcdefaults()  # other tests may have set the style of the book
        settings = dict(matplotlib.rcParams)
        yield
        changed = [key for key, value in settings.items() if matplotlib.rcParams[key] != value]
    after = plt.get_fignums()
    plt.close("all")
    assert after == figures
    assert changed == []
