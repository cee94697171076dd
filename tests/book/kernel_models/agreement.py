"""Computes by torch's CPU kernels, by the NumPy models of them, and in other orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import group_norm

from normlab.book import kernel_models as models
from normlab.book.experiments.processor import vector_code, with_threads
from normlab.book.kernel_models.rounding import StoredDtype

EPS = 1e-5
Pairs = Iterator[tuple[str, str, np.ndarray, Any]]  # quantity, model, torch's values, the model's
ROWS = 40  # of a LayerNorm
LANES = (4, 8, 16)  # register widths that the row statistics are modeled with


def _numpy(tensor: Tensor) -> np.ndarray:
    return np.asarray(tensor.detach().float().numpy())


def _layer_norm(dtype: StoredDtype, n: int, generator: Generator) -> Pairs:
    x = (3 + 2 * torch.randn(ROWS, n, generator=generator)).to(getattr(torch, dtype))
    dy = torch.randn(ROWS, n, generator=generator).to(x.dtype)
    x.requires_grad_()
    # float32 parameters, so that torch keeps the statistics in float32
    w, b = (torch.randn(n, generator=generator).requires_grad_() for _ in "wb")
    y, mean, rstd = torch.native_layer_norm(x, (n,), w, b, EPS)
    gradients = torch.autograd.grad(y, (x, w, b), dy)
    names = ("mean", "rstd", "y", "dx", "dweight", "dbias")
    tensors = (mean.ravel(), rstd.ravel(), y, *gradients)
    of_torch = dict(zip(names, map(_numpy, tensors), strict=True))

    code = vector_code()
    fused: dict[str, Any] = {"dtype": dtype, "fused": code.fused}
    values, upstream, weight, bias = map(_numpy, (x, dy, w, b))
    saved = upstream, values, of_torch["mean"], of_torch["rstd"]
    forward = models.layer_norm_rows(values, weight, bias, EPS, lanes=code.lanes, **fused)
    dx = models.input_gradient(*saved, weight, lanes=code.lanes, **fused)
    buffers = map(models.add_buffers, models.weight_gradient_buffers(*saved, **fused))
    modeled = {"kernel": {**forward._asdict(), **dict(zip(names[3:], (dx, *buffers), strict=True))}}
    var, mean_of_rows = values.var(1), values.mean(1)
    modeled["two passes"] = {"mean": mean_of_rows, "rstd": models.reciprocal_std(var, EPS)}
    for lanes in (k for k in LANES if k != code.lanes):
        found = models.row_moments(values, lanes=lanes, **fused)
        rstd_of_lanes = models.reciprocal_std(found.var, EPS)
        modeled[f"lanes={lanes}"] = {"mean": found.mean, "rstd": rstd_of_lanes}
    for model, arrays in modeled.items():
        for name, array in arrays.items():
            yield f"layer_norm {name}, {dtype}, {n}", model, of_torch[name], array
    y = torch.native_layer_norm(x, (n,), None, b, EPS)[0]
    without = models.layer_norm_rows(values, None, bias, EPS, lanes=code.lanes, **fused)
    yield f"layer_norm y without weight, {dtype}, {n}", "kernel", _numpy(y), without.y


def _batch_norm(shape: tuple[int, ...], generator: Generator) -> Pairs:
    x = (3 + 2 * torch.randn(shape, generator=generator)).requires_grad_()
    dy = torch.randn(shape, generator=generator)
    w, b = torch.randn(2, shape[1], generator=generator)
    running = torch.zeros(shape[1]), torch.ones(shape[1])
    y, mean, invstd = torch.native_batch_norm(x, w, b, *running, True, 0.1, EPS)
    of_torch = map(_numpy, (mean, invstd, y, *torch.autograd.grad(y, x, dy)))

    lanes, fused, _ = vector_code()
    values, upstream, weight, bias = map(_numpy, (x, dy, w, b))
    saved = models.BatchStatistics(_numpy(mean), _numpy(invstd))
    modeled = (
        *models.batch_statistics(values, EPS, fused=fused),
        models.batch_transform(values, saved, weight, bias, fused=fused),
        models.batch_input_gradient(upstream, values, saved, weight, lanes=lanes, fused=fused),
    )
    for name, right, array in zip(("mean", "invstd", "y", "dx"), of_torch, modeled, strict=True):
        yield f"batch_norm {name}, {shape}", "kernel", right, array


def _group_norm(shape: tuple[int, ...], channels_last: bool, generator: Generator) -> Pairs:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = (3 + 2 * torch.randn(shape, generator=generator)).contiguous(memory_format=layout)
    w, b = torch.randn(2, shape[1], generator=generator)
    n, c, height, width = shape
    _, mean, rstd = torch.native_group_norm(x, w, b, n, c, height * width, 2, EPS)
    of_torch = map(_numpy, (mean, rstd, group_norm(x, 2, w, b, EPS)))

    lanes, fused, _ = vector_code()
    how: dict[str, bool] = {"channels_last": channels_last, "fused": fused}
    values, weight, bias = map(_numpy, (x, w, b))
    saved = models.GroupStatistics(_numpy(mean), _numpy(rstd))
    modeled = (
        *models.group_statistics(values, 2, EPS, lanes=lanes, **how),
        models.group_transform(values, saved, weight, bias, **how),
    )
    which = f"{'channels_last' if channels_last else 'contiguous'}, {shape}"
    for name, right, array in zip(("mean", "rstd", "y"), of_torch, modeled, strict=True):
        yield f"group_norm {name}, {which}", "kernel", right, array


def _compare(quantity: str, model: str, of_torch: np.ndarray, modeled: Any) -> dict[str, Any]:
    wide, other = of_torch.astype(np.float64), modeled.astype(np.float64)
    return {
        "quantity": quantity,
        "model": model,
        "values": wide.size,
        "equal": int((wide == other).sum()),
        "difference": float(np.abs(wide - other).max()) / (float(np.abs(wide).max()) or 1.0),
    }


def kernel_agreement(
    features: tuple[int, ...] = (6, 130, 768),
    dtypes: tuple[StoredDtype, ...] = ("float32", "bfloat16", "float16"),
) -> list[dict[str, Any]]:
    """Compute random rows and images by torch on one thread and by the models, and compare.

    Returns:
        quantity: what was computed, for example "layer_norm mean, float32, 768".
        model: "kernel" for this machine's vector code, "lanes=4" and so on for another register,
            "two passes" for the textbook computation in NumPy's order.
        values: numbers compared.
        equal: how many are the same bit for bit; depends on the machine.
        difference: largest difference, over the largest magnitude.
    """
    generator = torch.Generator().manual_seed(0)
    pairs: list[tuple[str, str, np.ndarray, Any]] = []
    with with_threads(1):
        for dtype in dtypes:
            for n in features:
                pairs += _layer_norm(dtype, n, generator)
        for shape in ((6, 16, 9, 9), (2, 16, 33, 33)):
            pairs += _batch_norm(shape, generator)
            for channels_last in (False, True):
                pairs += _group_norm(shape, channels_last, generator)
    return [_compare(*pair) for pair in pairs]
