"""Notebooks that tests of grading write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

IMPORT = "from normlab.book.exercises import layer_norm as exercises"
RANK = "def rank(features, eps):\n    return {}\n\n\nprint(exercises.check_jacobian_rank(rank))"
COUNT = "def count(shape, n):\n    return {}\n\n\nprint(exercises.check_count_means(count))"
PAGES = {
    "layer_norm": {
        "ex-rank": "layer_norm.check_jacobian_rank",
        "ex-count": "layer_norm.check_count_means",
    },
    "checks_further": {"ex-own": ""},
}
RIGHT_RANK = "features - 1 - (eps == 0)"
RIGHT_COUNT = "__import__('math').prod(shape[: len(shape) - len(n)])"
LIMIT = 3  # seconds: many times what a fork needs to reach an endless cell
ENDLESS = "while True:\n    pass"


def exercise(label: str, title: str = "Rank") -> str:
    """The text of an exercise."""
    return f"```{{exercise}} {title}\n:label: {label}\n\nWhat is it?\n```"


def write(path: Path, *sources: str, **metadata: Any) -> Path:
    """A notebook of these cells; a text begins with a directive."""
    cells = [
        {
            "cell_type": "markdown" if source.startswith("```") else "code",
            "source": source.splitlines(keepends=True),
            "outputs": [{"output_type": "stream", "name": "stdout", "text": "right\n"}],
        }
        for source in sources
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4}))
    return path


def statuses(report: Any) -> list[str]:
    """Of the tasks that the notebook has."""
    return [task.status for task in report.tasks if task.cell is not None]
