"""A fixture for people's own tests: `check_norm` compares a layer with the formula of a norm.

pytest loads this file by its entry point in every run, so that it imports nothing but the standard
library before the fixture is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlab.checks import Report

_MARKER = "normlab: the test compares a layer with its formula; -m 'not normlab' leaves it out"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, so that --strict-markers knows it."""
    config.addinivalue_line("markers", _MARKER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that takes the fixture."""
    for item in items:
        if "check_norm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.normlab)


@pytest.fixture
def check_norm() -> Callable[..., Report]:
    """:func:`normlab.check_layer`, which fails the test where the layer does not conform.

    A layer that could not be tested raises `ValueError`, with what to pass.
    """
    from normlab.checks import check_layer

    def check(layer: Any, like: str, **options: Any) -> Report:
        report = check_layer(layer, like=like, **options)
        if not report.passed:
            pytest.fail(str(report), pytrace=False)
        return report

    return check
