"""How close are the NumPy models to torch's CPU kernels, and to what else?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import group_norm

from normlab import kernel_models as models
from normlab.experiments.processor import VectorCode, vector_code, with_threads
from normlab.experiments.settings import Count, Index
from normlab.kernel_models.rounding import StoredDtype

__all__ = ["Agreement", "Config", "Result", "run"]

EPS = 1e-5
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Config:
    """Random rows and images, each computed by torch on one thread and by the models.

    Attributes:
        rows: rows of a LayerNorm.
        features: lengths of the rows.
        dtypes: of the rows.
        lanes: register widths that the row statistics are modeled with, beside this machine's.
        seed: of all numbers.
    """

    rows: Count = 40
    features: tuple[Count, ...] = (6, 130, 768)
    dtypes: tuple[StoredDtype, ...] = ("float32", "bfloat16", "float16")
    lanes: tuple[int, ...] = (4, 8, 16)
    seed: Index = 0


@dataclass(frozen=True)
class Agreement:
    """One quantity, from torch and from a model.

    Attributes:
        quantity: what was computed, for example "layer_norm mean, float32, 768".
        model: "kernel" for this machine's vector code, "lanes=4" and so on for another register,
            "two passes" for the textbook computation in NumPy's order.
        values: numbers compared.
        equal: how many are the same bit for bit; depends on the machine.
        difference: largest difference, over the largest magnitude.
    """

    quantity: str
    model: str
    values: int
    equal: int
    difference: float


@dataclass(frozen=True)
class Result:
    """All comparisons.

    Attributes:
        agreements: one for each quantity and model.
        code: this machine's vector code.
        torch: version.
    """

    agreements: tuple[Agreement, ...]
    code: VectorCode
    torch: str

    def select(self, quantity: str, model: str = "kernel") -> tuple[Agreement, ...]:
        """Those of one model whose quantity starts with a text."""
        return tuple(
            a for a in self.agreements if a.quantity.startswith(quantity) and a.model == model
        )


def _compare(quantity: str, model: str, of_torch: np.ndarray, modeled: np.ndarray) -> Agreement:
    wide, other = of_torch.astype(np.float64), modeled.astype(np.float64)
    scale = float(np.abs(wide).max()) or 1.0
    return Agreement(
        quantity,
        model,
        wide.size,
        int((wide == other).sum()),
        float(np.abs(wide - other).max()) / scale,
    )


def _numpy(tensor: Tensor) -> np.ndarray:
    return np.asarray(tensor.detach().float().numpy())


def _two_passes(x: np.ndarray) -> Arrays:
    mean = x.mean(1)
    var = np.square(x - mean[:, None]).mean(1)
    return {"mean": mean, "rstd": models.reciprocal_std(var, EPS)}


def _layer_norm(
    n: int, dtype: StoredDtype, config: Config, code: VectorCode, generator: torch.Generator
) -> Iterator[Agreement]:
    x = (3 + 2 * torch.randn(config.rows, n, generator=generator)).to(getattr(torch, dtype))
    dy = torch.randn(config.rows, n, generator=generator).to(x.dtype)
    x.requires_grad_()
    # float32 parameters, so that torch keeps the statistics in float32
    w, b = (torch.randn(n, generator=generator).requires_grad_() for _ in "wb")
    y, mean, rstd = torch.native_layer_norm(x, (n,), w, b, EPS)
    dx, dweight, dbias = torch.autograd.grad(y, (x, w, b), dy)
    of_torch = {
        "mean": _numpy(mean).ravel(),
        "rstd": _numpy(rstd).ravel(),
        "y": _numpy(y),
        "dx": _numpy(dx),
        "dweight": _numpy(dweight),
        "dbias": _numpy(dbias),
    }
    values, upstream, weight, bias = (_numpy(t) for t in (x, dy, w, b))
    saved = of_torch["mean"], of_torch["rstd"]
    forward = models.layer_norm_rows(
        values, weight, bias, EPS, dtype=dtype, lanes=code.lanes, fused=code.fused
    )
    buffers = models.weight_gradient_buffers(
        upstream, values, *saved, dtype=dtype, fused=code.fused
    )
    modeled: dict[str, Arrays] = {
        "kernel": {
            **forward._asdict(),
            "dx": models.input_gradient(
                upstream, values, *saved, weight, dtype=dtype, lanes=code.lanes, fused=code.fused
            ),
            "dweight": models.add_buffers(buffers[0]),
            "dbias": models.add_buffers(buffers[1]),
        },
        "two passes": _two_passes(values),
    }
    for lanes in config.lanes:
        if lanes != code.lanes:
            found = models.row_moments(values, dtype=dtype, lanes=lanes, fused=code.fused)
            rstd_of_lanes = models.reciprocal_std(found.var, EPS)
            modeled[f"lanes={lanes}"] = {"mean": found.mean, "rstd": rstd_of_lanes}
    for model, arrays in modeled.items():
        for name, array in arrays.items():
            yield _compare(f"layer_norm {name}, {dtype}, {n}", model, of_torch[name], array)
    with_bias = torch.native_layer_norm(x, (n,), None, b, EPS)[0]
    modeled_bias = models.layer_norm_rows(
        values, None, bias, EPS, dtype=dtype, lanes=code.lanes, fused=code.fused
    ).y
    name = f"layer_norm y without weight, {dtype}, {n}"
    yield _compare(name, "kernel", _numpy(with_bias), modeled_bias)


def _batch_norm(
    shape: tuple[int, ...], code: VectorCode, generator: torch.Generator
) -> Iterator[Agreement]:
    x = (3 + 2 * torch.randn(shape, generator=generator)).requires_grad_()
    dy = torch.randn(shape, generator=generator)
    w, b = torch.randn(2, shape[1], generator=generator)
    running = torch.zeros(shape[1]), torch.ones(shape[1])
    y, mean, invstd = torch.native_batch_norm(x, w, b, *running, True, 0.1, EPS)
    (dx,) = torch.autograd.grad(y, x, dy)
    saved = models.BatchStatistics(_numpy(mean), _numpy(invstd))
    values = _numpy(x)
    statistics = models.batch_statistics(values, EPS, fused=code.fused)
    transformed = models.batch_transform(values, saved, _numpy(w), _numpy(b), fused=code.fused)
    yield _compare(f"batch_norm mean, {shape}", "kernel", _numpy(mean), statistics.mean)
    yield _compare(f"batch_norm invstd, {shape}", "kernel", _numpy(invstd), statistics.invstd)
    yield _compare(f"batch_norm y, {shape}", "kernel", _numpy(y), transformed)
    gradient = models.batch_input_gradient(
        _numpy(dy), values, saved, _numpy(w), lanes=code.lanes, fused=code.fused
    )
    yield _compare(f"batch_norm dx, {shape}", "kernel", _numpy(dx), gradient)


def _group_norm(
    shape: tuple[int, ...], channels_last: bool, code: VectorCode, generator: torch.Generator
) -> Iterator[Agreement]:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = (3 + 2 * torch.randn(shape, generator=generator)).contiguous(memory_format=layout)
    w, b = torch.randn(2, shape[1], generator=generator)
    y = group_norm(x, 2, w, b, EPS)
    _, mean, rstd = torch.native_group_norm(
        x, w, b, shape[0], shape[1], shape[2] * shape[3], 2, EPS
    )
    statistics = models.group_statistics(
        _numpy(x), 2, EPS, channels_last=channels_last, lanes=code.lanes, fused=code.fused
    )
    saved = models.GroupStatistics(_numpy(mean), _numpy(rstd))
    transformed = models.group_transform(
        _numpy(x), saved, _numpy(w), _numpy(b), channels_last=channels_last, fused=code.fused
    )
    which = f"{'channels_last' if channels_last else 'contiguous'}, {shape}"
    yield _compare(f"group_norm mean, {which}", "kernel", _numpy(mean), statistics.mean)
    yield _compare(f"group_norm rstd, {which}", "kernel", _numpy(rstd), statistics.rstd)
    yield _compare(f"group_norm y, {which}", "kernel", _numpy(y), transformed)


def run(config: Config) -> Result:
    """Compare everything."""
    code = vector_code()
    generator = torch.Generator().manual_seed(config.seed)
    found: list[Agreement] = []
    with with_threads(1):
        for dtype in config.dtypes:
            for n in config.features:
                found += _layer_norm(n, dtype, config, code, generator)
        for shape in ((6, 16, 9, 9), (2, 16, 33, 33)):
            found += _batch_norm(shape, code, generator)
            for channels_last in (False, True):
                found += _group_norm(shape, channels_last, code, generator)
    return Result(tuple(found), code, torch.__version__)
