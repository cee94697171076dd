"""The recorded limits of a machine, and where the recorded norms lie below them.

`python -m normlab.book.bench.limits` writes the record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normlab.book.experiments.fast_norms.times import Times

# additions, subtractions and multiplications for each value of a layer norm, forward and backward:
# sum 1, centering 1, squares 2, scaling 1, weight and bias 2; then x_hat 2, dy times weight 1,
# its two sums 3, gradient of the input 4, gradients of weight and bias 3
OPERATIONS = 20
PASSED = 5  # tensors of the input's size that a fused layer norm reads or writes in both passes


class Limits:
    """Shares of a Transformer block on one machine."""

    def __init__(self, path: Path | str) -> None:
        self._all: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))

    def share(self, width: int) -> dict[str, float]:
        """Percent of a Transformer block that its two norms take, by variant.

        Raises:
            KeyError: the record has no such width, or its control was off.
        """
        for row in self._all["shares"]:
            if row["width"] == width and row["control"] <= 0.1:
                return {name: 100 * value for name, value in row["share"].items()}
        raise KeyError(f"width: got {width}; the record concludes nothing about it")


def place(times: Times, values: int, moved: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Operations for each byte, and operations a second, of recorded layer norms in float32.

    `values` counts those of the input, and `moved` gives for each variant the multiples of the
    input's bytes that it reads and writes.
    """
    work = OPERATIONS * values
    return {
        name: (OPERATIONS / (4 * passed), work / (1e-3 * times.of(name)))
        for name, passed in moved.items()
    }
