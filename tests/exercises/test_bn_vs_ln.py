"""The graders of the comparison accept right answers and name each mistake."""

import pytest

from normlab.exercises import bn_vs_ln as exercises
from normlab.layers import batch_norm, instance_norm, layer_norm

SIZES = {"batch_norm": (2, 2), "layer_norm": (2, 0), "rms_norm": (1, 0)}


def _transposed(x, weight, bias):
    return layer_norm(x.T, x.T.shape[1:]).T * weight + bias


RIGHT = {
    "check_batch_norm_by_layer_norm": _transposed,
    "check_token_batch_norm": lambda x: batch_norm(
        x.flatten(0, 1), None, None, training=True
    ).view_as(x),
    "check_stored_numbers": lambda norm, d: (SIZES[norm][0] * d, SIZES[norm][1] * d),
}


def _along_samples(x, weight, bias):
    y = layer_norm(x.T, x.T.shape[1:])
    return (y * weight + bias).T


WRONG = [
    (
        "check_batch_norm_by_layer_norm",
        lambda x, w, b: layer_norm(x, x.shape[1:], w, b),
        "means are still those of the rows",
    ),
    (
        "check_batch_norm_by_layer_norm",
        lambda x, w, b: layer_norm(x.T, x.T.shape[1:]).T,
        "weight and bias are missing",
    ),
    (
        "check_batch_norm_by_layer_norm",
        lambda x, w, b: _transposed(x, w, b).T,
        "still transposed",
    ),
    ("check_batch_norm_by_layer_norm", _along_samples, "along the samples"),
    ("check_token_batch_norm", lambda x: layer_norm(x, x.shape[-1:]), "layer norm"),
    (
        "check_token_batch_norm",
        lambda x: batch_norm(x, None, None, training=True),
        "each position has its own mean",
    ),
    (
        "check_token_batch_norm",
        lambda x: instance_norm(x.transpose(1, 2)).transpose(1, 2),
        "instance norm",
    ),
    (
        "check_token_batch_norm",
        lambda x: batch_norm(x.flatten(1), None, None, training=True).view_as(x),
        "each position of each feature",
    ),
    ("check_token_batch_norm", lambda x: layer_norm(x, x.shape), "whole tensor"),
    ("check_stored_numbers", lambda norm, d: (2 * d, 0), "not learned, but they are kept"),
    ("check_stored_numbers", lambda norm, d: (4 * d, 0), "buffers, not learned"),
    ("check_stored_numbers", lambda norm, d: (2, 2 * d), "for each feature"),
    (
        "check_stored_numbers",
        lambda norm, d: (2 * d, 2 * d) if norm == "batch_norm" else (2, 0),
        "vectors",
    ),
    ("check_stored_numbers", lambda norm, d: (2 * d, 2 * d), "keeps no running moments"),
    (
        "check_stored_numbers",
        lambda norm, d: (2 * d, 2 * d if norm == "batch_norm" else 0),
        "no bias",
    ),
]


@pytest.mark.parametrize(("name", "answer", "part"), WRONG)
def test_each_mistake_is_named(name, answer, part):
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong:") and part in verdict
