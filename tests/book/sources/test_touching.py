"""The data of a figure that one can touch are rounded, complete and no danger to the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from normlab.book.sources import touch


@pytest.fixture(scope="module", autouse=True)
def _shell() -> Iterator[None]:
    InteractiveShell.instance()
    yield
    InteractiveShell.clear_instance()


def read(data: dict[str, Any]) -> Any:
    with capture_output() as shown:
        touch("name", data)
    (html,) = re.findall(r'data-figure="name">(.*)</script>$', shown.outputs[0].data["text/html"])
    return json.loads(html)


def test_floats_are_rounded_to_six_digits() -> None:
    stored = read({"a": 1 / 3, "b": np.array([2e6 / 3, 1e-5 / 3]), "c": torch.tensor(0.1)})
    assert stored == {"a": 0.333333, "b": [666667.0, 3.33333e-6], "c": 0.1}


def test_what_is_no_float_stays() -> None:
    kept = {"text": "−", "count": 12_345_678, "true": True, "none": None, "nested": [{"a": [1]}]}
    assert read(kept) == kept
    assert read({1: (2, 3)}) == {"1": [2, 3]}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_null(value: float) -> None:
    assert read({"a": [value]}) == {"a": [None]}


def test_text_does_not_end_the_script() -> None:
    text = "</script><script>alert(1)</script>"
    with capture_output() as shown:
        touch("name", {"a": text})
    assert shown.outputs[0].data["text/html"].count("<") == 2
    assert read({"a": text}) == {"a": text}


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="data: got <object"):
        read({"a": object()})
