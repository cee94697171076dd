"""The graders of the chapter on fast norms accept right answers and name each mistake."""

import pytest
import torch

from normlab.exercises import fast_norms as exercises


def _in_bfloat16(dy):
    total = torch.zeros(dy.shape[1], dtype=torch.bfloat16)
    for row in dy:
        total = total + row
    return total


RIGHT = {
    "check_bytes_moved": lambda rows, features, bytes_each: 5 * rows * features * bytes_each,
    "check_saved_numbers": lambda norm, rows, features: (1 + (norm == "layer_norm")) * rows,
    "check_sum_in_blocks": lambda dy: dy.float().sum(0).bfloat16(),
}


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_bytes_moved", lambda r, f, b: 5 * r * f, "bytes_each"),
        ("check_bytes_moved", lambda r, f, b: 2 * r * f * b, "forward alone"),
        ("check_bytes_moved", lambda r, f, b: 3 * r * f * b, "backward alone"),
        ("check_bytes_moved", lambda r, f, b: 4 * r * f * b, "reads the input"),
        ("check_bytes_moved", lambda r, f, b: 6 * r * f * b, "not read in backward"),
        ("check_saved_numbers", lambda n, r, f: r * f, "few numbers a row"),
        ("check_saved_numbers", lambda n, r, f: r * f + r, "few numbers a row"),
        ("check_saved_numbers", lambda n, r, f: 2 * f, "not of features"),
        ("check_saved_numbers", lambda n, r, f: r, "a mean, too"),
        ("check_saved_numbers", lambda n, r, f: 2 * r, "keeps none"),
        ("check_sum_in_blocks", _in_bfloat16, "stops growing"),
        ("check_sum_in_blocks", lambda dy: dy.float().mean(0), "do not average"),
        ("check_sum_in_blocks", lambda dy: dy.float().sum(1), "axis 0"),
    ],
)
def test_mistakes_are_named(name, answer, says):
    assert says in getattr(exercises, name)(answer)
