"""The table of axes against what the layers do: move one cell, see which outputs move."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch

from normlab import layers
from normlab.norms import NORMS, label_cells, label_parameters, reduced_axes

CASES = [
    ("batch_norm", (3, 4), {}),
    ("batch_norm", (2, 4, 3), {}),
    ("batch_norm", (2, 3, 2, 2), {}),
    ("layer_norm", (3, 4), {}),
    ("layer_norm", (2, 3, 4), {}),
    ("layer_norm", (2, 3, 4), {"normalized_ndim": 2}),
    ("rms_norm", (2, 3, 4), {}),
    ("group_norm", (2, 4, 3), {"num_groups": 2}),
    ("group_norm", (2, 4, 3), {"num_groups": 1}),
    ("instance_norm", (2, 4, 3), {}),
    ("filter_response_norm", (2, 4, 3), {}),
    ("global_response_norm", (2, 4, 3), {}),
    ("scale_norm", (2, 3, 4), {}),
    ("zero_centered_rms_norm", (2, 3, 4), {"normalized_ndim": 2}),
]


def run(name, x, options):
    if name == "batch_norm":
        return layers.batch_norm(x, None, None, training=True)
    if NORMS[name].trailing and "normalized_shape" in NORMS[name].signature:
        return getattr(layers, name)(x, x.shape[x.dim() - options.get("normalized_ndim", 1) :])
    if name == "group_norm":
        return layers.group_norm(x, options["num_groups"])
    return getattr(layers, name)(x)


@pytest.mark.parametrize(("name", "shape", "options"), CASES)
def test_cells_with_one_label_move_together(name, shape, options):
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = label_cells(name, shape, **options)
    y = run(name, x, options)
    for index in np.ndindex(shape):
        moved = x.clone()
        moved[index] += 1.0
        changed = (run(name, moved, options) - y).abs().numpy() > 1e-9
        np.testing.assert_array_equal(changed, labels == labels[index])


@pytest.mark.parametrize(
    ("name", "shape", "options"), [c for c in CASES if NORMS[c[0]].parameters != "scalar"]
)
def test_parameters_reach_the_cells_of_their_label(name, shape, options):
    ndim = options.get("normalized_ndim", 1)
    shape_norm = NORMS[name].kind == "shape"
    size = shape[len(shape) - ndim :] if shape_norm else shape[1:2]
    weight = torch.arange(float(np.prod(size))).reshape(size)
    x = torch.ones(shape)
    if shape_norm:
        reached = layers.rms_norm(x, size, weight, eps=0.0)
    else:
        reached = layers.batch_norm(x, torch.zeros(size), torch.ones(size), weight, eps=0.0)
    options = {"normalized_ndim": ndim} if shape_norm else {}
    labels = label_parameters(name, shape, **options)
    np.testing.assert_allclose(reached, labels, rtol=1e-6)


def test_number_of_means():
    shape = (2, 6, 5)
    counts = {
        "batch_norm": 6,
        "instance_norm": 12,
        "layer_norm": 12,
    }
    for name, count in counts.items():
        assert len(np.unique(label_cells(name, shape))) == count
    assert len(np.unique(label_cells("group_norm", shape, num_groups=3))) == 6


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: reduced_axes("bacth_norm", 2), "name"),
        (lambda: reduced_axes("batch_norm", 1), "ndim"),
        (lambda: reduced_axes("layer_norm", 2, normalized_ndim=3), "normalized_ndim"),
        (lambda: label_cells("group_norm", (2, 4)), "num_groups"),
        (lambda: label_cells("group_norm", (2, 4), num_groups=3), "num_groups"),
        (lambda: label_cells("batch_norm", (2, 4), num_groups=2), "num_groups"),
    ],
)
def test_bad_arguments(call, word):
    with pytest.raises(ValueError, match=word):
        call()


def test_labels_of_a_scalar_and_of_none(monkeypatch):
    assert (label_parameters("scale_norm", (2, 3)) == 0).all()
    bare = dataclasses.replace(NORMS["scale_norm"], parameters="none")
    monkeypatch.setitem(NORMS, "bare", bare)
    with pytest.raises(ValueError, match="bare has no weight"):
        label_parameters("bare", (2, 3))


@pytest.mark.parametrize(
    ("values", "arguments"),
    [
        ({}, (None, None, None, None, True, 0.1, 1e-5)),
        ({"weight": 2, "training": False, "eps": 1.0, "other": 3},
         (None, None, 2, None, False, 0.1, 1.0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_arguments_stand_in_the_order_of_the_signature(name, values, arguments):
    assert NORMS[name].arguments(**values) == arguments


def test_records_are_read_without_torch():
    program = "import sys, normlab.norms; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n"
