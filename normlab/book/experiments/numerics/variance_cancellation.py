"""How wrong are variance and LayerNorm in float32 when the mean is large, for each algorithm?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch

from normlab.book.experiments.sweep import Seed, experiment
from normlab.layers.standardization import standardize
from normlab.reference.moments import Moments, naive_one_pass, two_pass, welford

Method = Literal["one pass", "Welford", "two passes", "torch", "corrected"]
ROWS = 16
METHODS: tuple[Method, ...] = get_args(Method)

_MOMENTS: dict[str, Callable[[np.ndarray, int], Moments]] = {
    "one pass": naive_one_pass,
    "Welford": welford,
    "two passes": two_pass,
}


def _normalize(method: Method, x: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Output and variance (rows, 1), both as float32 gave them."""
    if method in _MOMENTS:
        _, mean, var = _MOMENTS[method](x, -1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (x - mean) / np.sqrt(var + np.float32(eps)), var
    rows = torch.from_numpy(x)
    if method == "torch":
        y, _, rstd = torch.native_layer_norm(rows, rows.shape[-1:], None, None, eps)
        return y.numpy(), rstd.double().numpy() ** -2 - eps
    centered_and_scaled, _, variance = standardize(rows, (-1,), eps)
    return centered_and_scaled.numpy(), variance.numpy()


@experiment(method=METHODS, seed=range(5), mean=(1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6))
def variance_cancellation(method: Method, seed: Seed, mean: float) -> dict[str, float | None]:
    """Normalize rows of standard deviation 1 around a mean in float32; float64 has the truth.

    Returns:
        variance_error: largest relative error of the variance.
        output_error: largest error of the output; None where an output is not finite.
        negative: rows whose variance came out below zero.
    """
    noise = np.random.default_rng(seed).standard_normal((ROWS, 768))
    x = (mean + noise).astype(np.float32)
    exact = two_pass(x.astype(np.float64), -1)
    y, var = _normalize(method, x, 1e-5)
    error = np.abs(y - (x - exact.mean) / np.sqrt(exact.var + 1e-5)).max()
    return {
        "variance_error": float(np.abs(var / exact.var - 1).max()),
        "output_error": float(error) if np.isfinite(error) else None,
        "negative": int((var < 0).sum()),
    }


def constant_row(method: Method, value: float, *, features: int = 768, eps: float = 1e-5) -> float:
    """Largest output of a row that holds one value in all cells; 0 is right."""
    row = np.full((1, features), value, dtype=np.float32)
    return float(np.abs(_normalize(method, row, eps)[0]).max())
