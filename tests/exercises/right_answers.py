"""Every grader of the package, with the right answers that the test of its chapter feeds it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from normlab import exercises
from normlab.grading.process import find_checks
from normlab.sources import torch_release

CHAPTERS = {
    info.name: importlib.import_module(f"normlab.exercises.{info.name}")
    for info in pkgutil.iter_modules(exercises.__path__)
    if info.name != "grading"
}
OF_CHAPTERS = " of "  # one grader serves the variants of many chapters
GRADERS = [
    (chapter, name + suffix)
    for chapter, module in CHAPTERS.items()
    for name in find_checks(module)
    for suffix in (
        [OF_CHAPTERS + c for c in CHAPTERS["variants"].CHAPTERS] if name == "check_answer" else [""]
    )
]


def grader_of(chapter: str, name: str) -> Callable[..., str]:
    name, _, of_chapter = name.partition(OF_CHAPTERS)
    grader: Callable[..., str] = getattr(CHAPTERS[chapter], name)
    options = {"chapter": of_chapter} if of_chapter else {}
    return functools.partial(grader, seed=3, **options) if chapter == "variants" else grader


@functools.cache
def _right_of_chapter(chapter: str) -> dict[str, Any]:
    path = Path(__file__).with_name(f"test_{chapter}.py")
    spec = importlib.util.spec_from_file_location(f"right_{chapter}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    right: dict[str, Any] = module.RIGHT
    return right


def right_answers(chapter: str, name: str) -> tuple[Callable[..., Any], ...]:
    """One answer, or two where the grader takes two."""
    if chapter == "pytorch_source" and torch_release() != "2.13.0":
        pytest.skip("the answers are torch 2.13.0's")
    right = _right_of_chapter(chapter)[name]
    return right if isinstance(right, tuple) else (right,)
