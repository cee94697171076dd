"""The answers that the test of every check feeds to those of the comparison."""

import numpy as np
import torch
from torch.nn import functional

from normlab.layers import batch_norm, layer_norm

SIZES = {"batch_norm": (2, 2), "layer_norm": (2, 0), "rms_norm": (1, 0)}


def transposed(x, weight, bias):
    return layer_norm(x.T, x.T.shape[1:]).T * weight + bias


def by_module(x, weight, bias):
    columns = torch.nn.LayerNorm(len(x), elementwise_affine=False)(x.T.contiguous()).mT
    return torch.addcmul(bias, columns, weight)


def folded(x):
    return batch_norm(x.flatten(0, 1), None, None, training=True).view_as(x)


def over(*axes, eps=1e-5, correction=0, outside=False):
    def norm(x):
        var, mean = torch.var_mean(x, axes, correction=correction, keepdim=True)
        return (x - mean) / (var.sqrt() + eps if outside else (var + eps).sqrt())

    return norm


def in_numpy(x):
    x = np.asarray(x)
    return (x - x.mean((0, 1))) / np.sqrt(x.var((0, 1)) + 1e-5)


RIGHT = {
    "check_batch_norm_by_layer_norm": transposed,
    "check_token_batch_norm": folded,
    "check_stored_numbers": lambda norm, d: (SIZES[norm][0] * d, SIZES[norm][1] * d),
}
OTHER = {
    "check_batch_norm_by_layer_norm": by_module,
    "check_token_batch_norm": in_numpy,
    "check_stored_numbers": lambda norm, d: np.array(SIZES[norm]) * d,
}
WRONG = {
    "check_batch_norm_by_layer_norm": {
        "batch norm itself": (
            lambda x, w, b: functional.batch_norm(x, None, None, w, b, True),
            "it calls batch_norm",
        ),
        "by hand": (lambda x, w, b: over(0)(x) * w + b, "calls no layer norm"),
        "the rows": (lambda x, w, b: layer_norm(x, x.shape[1:], w, b), "those of the rows"),
        "left transposed": (
            lambda x, w, b: (layer_norm(x.T, x.shape[:1]).T * w + b).T,
            "still transposed",
        ),
        "no affine map": (
            lambda x, w, b: layer_norm(x.T, x.shape[:1]).T,
            "weight and bias are not applied",
        ),
    },
    "check_token_batch_norm": {
        "no eps": (over(0, 1, eps=0.0), "eps is missing"),
        "eps outside": (over(0, 1, outside=True), "eps outside the root"),
        "Bessel": (over(0, 1, correction=1), "use correction=0"),
        "layer norm": (over(2), "which is layer norm"),
        "BatchNorm1d of (N, T, D)": (
            lambda x: torch.nn.BatchNorm1d(x.shape[1], affine=False, dtype=x.dtype)(x),
            "that is how BatchNorm1d reads",
        ),
        "instance norm": (over(1), "which is instance norm"),
        "rows": (lambda x: folded(x).flatten(0, 1), "expected shape"),
    },
    "check_stored_numbers": {
        "the count of batches": (
            lambda norm, d: (SIZES[norm][0] * d, SIZES[norm][1] * d + (norm == "batch_norm")),
            "without the count of batches",
        ),
        "not per feature": (lambda norm, d: SIZES[norm], "each of the four is a vector"),
        "all learned": (
            lambda norm, d: (sum(SIZES[norm]) * d, 0),
            "the running moments are buffers",
        ),
        "running moments everywhere": (
            lambda norm, d: (SIZES[norm][0] * d, 2 * d),
            "layer norm keeps no running moments",
        ),
        "RMS norm with a bias": (
            lambda norm, d: (2 * d, SIZES[norm][1] * d),
            "a weight and no bias",
        ),
        "the sum": (lambda norm, d: sum(SIZES[norm]) * d, "expected a tuple of 2 values, got int"),
    },
}
