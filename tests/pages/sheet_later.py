"""The norms after 2016 on the cheat sheet against the layers: formulas, axes, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sheet import Section, unquote
from torch import Tensor, nn

from normlab import layers

# letters of the third column -> axes of (N, C, H, W), of (N, heads, T, D) or of a filter
AXES: dict[str, tuple[int, ...]] = {
    "N, H, W": (0, 2, 3),
    "H, W": (2, 3),
    "C": (1,),
    "inputs of a filter": (1, 2, 3),
    "D": (3,),
    "D of a head": (3,),
    "no axis": (),
}
IMAGE = (3, 4, 2, 5)
EPS = 0.1


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def names(over: str, **values: Any) -> dict[str, Any]:
    """What stands in a formula; the reductions are over the axes of the third column."""
    axes = AXES[over]
    return {
        "eps": EPS,
        "sqrt": torch.sqrt,
        "tanh": torch.tanh,
        "erf": torch.erf,
        "clip": torch.clip,
        "maximum": lambda a, b: torch.maximum(a, torch.as_tensor(b, dtype=a.dtype)),
        "mean": lambda v: v.mean(axes, keepdim=True),
        "sum": lambda v: v.sum(axes, keepdim=True),
        "var": lambda v: v.var(axes, correction=0, keepdim=True),
    } | values


X = normal(*IMAGE)
CHANNELS = {
    key: normal(4, seed=seed) for seed, key in enumerate(("weight", "bias", "threshold"), 1)
}
FEATURES = {key: normal(5, seed=seed) for seed, key in enumerate(("weight", "bias"), 1)}
ALPHA, SHIFT = (torch.tensor(value, dtype=torch.float64) for value in (0.4, 0.3))
RUNNING = {"running_mean": normal(4, seed=5), "running_var": normal(4, seed=6).square() + 0.2}
BOUNDS = {"r_max": 1.5, "d_max": 0.6}


def by_channel(values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value.view(-1, 1, 1) for key, value in values.items()}


def standardize_weight() -> Tensor:
    layer = nn.Conv2d(3, 4, 2).double()
    with torch.no_grad():
        layer.weight.copy_(normal(4, 3, 2, 2))
    return layers.weight_standardization(layer, eps=EPS).weight


def norm_queries() -> Tensor:
    norm = layers.QKNorm(5, eps=EPS).double()
    with torch.no_grad():
        norm.query.weight.copy_(FEATURES["weight"])
        return norm(X, X)[0]


def renorm() -> Tensor:
    running = {key: value.clone() for key, value in RUNNING.items()}
    own = {key: CHANNELS[key] for key in ("weight", "bias")}
    return layers.batch_renorm(X, **running, **own, training=True, eps=EPS, **BOUNDS)


WEIGHT = {"weight": FEATURES["weight"]}
AFFINE = {**WEIGHT, "bias": FEATURES["bias"]}
# by the norm's name: what stands in its formula, and what its layer gives
EXPECTED: dict[str, tuple[dict[str, Any], Callable[[], Tensor]]] = {
    "filter response norm": (
        {"x": X, **by_channel(CHANNELS)},
        lambda: layers.filter_response_norm(X, **CHANNELS, eps=EPS),
    ),
    "weight standardization": ({"w": normal(4, 3, 2, 2)}, standardize_weight),
    "ScaleNorm": (
        {"x": X, "weight": torch.tensor(1.7), "eps": 2.5},
        lambda: layers.scale_norm(X, torch.tensor(1.7, dtype=torch.float64), eps=2.5),
    ),
    "QK-norm": ({"x": X, **WEIGHT}, norm_queries),
    "zero-centered RMS norm": (
        {"x": X, **WEIGHT},
        lambda: layers.zero_centered_rms_norm(X, (5,), FEATURES["weight"], eps=EPS),
    ),
    "DyT": (
        {"x": X, "alpha": ALPHA, **AFFINE},
        lambda: layers.dyt(X, ALPHA, **AFFINE),
    ),
    "Derf": (
        {"x": X, "alpha": ALPHA, "shift": SHIFT, **AFFINE},
        lambda: layers.derf(
            X,
            ALPHA,
            SHIFT,
            **AFFINE,
        ),
    ),
}
MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch renorm": lambda: layers.BatchRenorm2d(4),
    "filter response norm": lambda: layers.FilterResponseNorm(4),
    "global response norm": lambda: layers.GlobalResponseNorm(4),
    "weight standardization": lambda: layers.weight_standardization(nn.Conv2d(3, 4, 2)),
    "ScaleNorm": lambda: layers.ScaleNorm(5),
    "QK-norm": lambda: layers.QKNorm(5),
    "zero-centered RMS norm": lambda: layers.ZeroCenteredRMSNorm(5),
    "DyT": lambda: layers.DyT(5),
    "Derf": lambda: layers.Derf(5),
}
KEPT = {(): "nothing", ("running_mean", "running_var"): "running mean and variance"}


def assigned(cell: str, name: str) -> str:
    left, right = unquote(cell).split(" = ", 1)
    assert left == name, cell
    return right


def verify_renorm(rows: list[list[str]]) -> None:
    known = by_channel({**RUNNING, **{k: CHANNELS[k] for k in ("weight", "bias")}})
    space = {"x": X, **known, **BOUNDS}
    r, d = (
        eval(assigned(row[1], name), names(row[2], **space))
        for row, name in zip(rows[1:], "rd", strict=True)
    )
    assert (r == BOUNDS["r_max"]).any() or (r == 1 / BOUNDS["r_max"]).any()
    assert (d.abs() == BOUNDS["d_max"]).any()
    reduce = names(rows[0][2])
    x_hat = (X - reduce["mean"](X)) / (reduce["var"](X) + EPS).sqrt()
    got = eval(unquote(rows[0][1]), {**space, "x_hat": x_hat, "r": r, "d": d})
    torch.testing.assert_close(got, renorm())


def verify_response(rows: list[list[str]]) -> None:
    length = eval(assigned(rows[1][1], "length"), names(rows[1][2], x=X))
    own = {key: CHANNELS[key] for key in ("weight", "bias")}
    got = eval(unquote(rows[0][1]), names(rows[0][2], x=X, length=length, **by_channel(own)))
    torch.testing.assert_close(got, layers.global_response_norm(X, **own, eps=EPS))


def verify_later(section: Section) -> None:
    """Each formula gives what the layer gives, over the axes beside it."""
    head, *rows = section.take_table()
    assert head[2] == "`mean`, `var`, `sum` over"
    rows = [[row[0].removesuffix(", train"), *row[1:]] for row in rows]
    blocks: list[list[list[str]]] = []
    for row in rows:
        if row[0] in MODULES:
            blocks.append([])
        blocks[-1].append(row)
    assert [block[0][0] for block in blocks] == list(MODULES)
    for block in blocks:
        name, formula, over, kept, use = block[0]
        if name == "batch renorm":
            verify_renorm(block)
        elif name == "global response norm":
            verify_response(block)
        else:
            assert len(block) == 1
            space, layer = EXPECTED[name]
            got = eval(unquote(formula), names(over, **space))
            torch.testing.assert_close(got, layer().detach())
        buffers = (key for key, _ in MODULES[name]().named_buffers())
        assert kept == KEPT[tuple(key for key in buffers if key != "num_batches_tracked")]
        assert use
