"""A small input is shown where no known mistake explains the output."""

import re

import torch
import torch.nn.functional as F
from torch import nn

from normlab import check_layer


def absolute(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Layer norm of the magnitudes."""
    return F.layer_norm(x.abs(), normalized_shape, weight, bias, eps)


class Absolute(nn.GroupNorm):
    def forward(self, x):
        return super().forward(x.abs())


def test_what_nothing_explains_is_shown_by_a_small_input():
    report = str(check_layer(absolute, like="layer_norm"))
    shown = r"no known mistake explains the output. Smallest input found: shape \(1, (\d)\): "
    size, *rows = re.search(rf"{shown}x (.*?); expected (.*?); got (.*?) \(error", report).groups()
    x, want, got = (torch.tensor([float(v) for v in row.split(", ")]) for row in rows)
    assert x.shape == (int(size),) and size in "23" and set(x.tolist()) <= {-2, -1, 0, 1}
    torch.testing.assert_close(F.layer_norm(x, x.shape), want, atol=1e-3, rtol=0)
    torch.testing.assert_close(absolute(x, x.shape), got, atol=1e-3, rtol=0)
    report = str(check_layer(Absolute(2, 40), like="group_norm"))
    assert re.search(r"shape \(1, 40\), at its entry \d+: x -.*; expected .*; got .*", report), (
        report
    )
