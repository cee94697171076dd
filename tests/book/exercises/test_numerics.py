"""The graders of the chapter on numerics take right answers and name each mistake."""

import numpy as np


def _masked(x, mask):
    m, n = mask[:, None, :], mask.sum()
    mean = np.where(m, x, 0).sum((0, 2)) / n
    return mean, np.where(m, (x - mean[:, None]) ** 2, 0).sum((0, 2)) / n


def _fold(kernel, bias, mean, var, weight, shift, eps):
    s = weight / np.sqrt(var + eps)
    return kernel * s[:, None, None, None], (bias - mean) * s + shift


RIGHT = {
    "check_variance": lambda x: ((x - x.mean(1, keepdims=True)) ** 2).mean(1),
    "check_half_size": lambda eps, place: {
        "inside": (eps / 3) ** 0.5,
        "outside": eps,
        "clamp": eps / 2,
    }[place],
    "check_masked_moments": _masked,
    "check_porting": lambda m, eps, var, n: (1 - m, eps, var),
    "check_conv_folding": _fold,
}


def _masked_by_index(x, mask):
    real = x.transpose(0, 2, 1)[mask]
    return real.mean(0), real.var(0)


def _masked_by_product(x, mask):
    m, n = mask[:, None, :], mask.sum()
    mean = (x * m).sum((0, 2)) / n
    return mean, (((x - mean[:, None]) * m) ** 2).sum((0, 2)) / n


def _fold_by_name(kernel, bias, mean, var, weight, shift, eps):
    s = weight * (var + eps) ** -0.5
    return np.einsum("o,oihw->oihw", s, kernel), shift - s * (mean - bias)


OTHER = {
    "check_variance": lambda x: x.var(-1),
    "check_half_size": lambda eps, place: (
        eps / 2 if place == "clamp" else eps if place == "outside" else np.sqrt(eps / 3)
    ),
    "check_masked_moments": _masked_by_index,
    "check_porting": lambda m, eps, var, n: [1 - m, eps, var],
    "check_conv_folding": _fold_by_name,
}
AS_TORCH = {"check_variance"}
WRONG = {
    "check_variance": {
        "by astype": (lambda x: x.astype("f8").var(1), "float64"),
        "by dtype": (lambda x: x.var(1, dtype=np.float64), "float64"),
        "by a product": (lambda x: (x * np.ones(1)).var(1), "expected dtype float32, got float64"),
        "by np.cov": (lambda x: np.cov(x, bias=True).diagonal(), "np.cov"),
        "as a list": (lambda x: x.var(1).tolist(), "an array of the input's dtype"),
        "in one pass": (lambda x: (x**2).mean(1) - x.mean(1) ** 2, "mean of squares"),
        "kept as an axis": (lambda x: x.var(1, keepdims=True), "expected shape (3,)"),
    },
    "check_half_size": {
        "a floor under the variance": (
            lambda eps, place: {"inside": (eps / 3) ** 0.5, "outside": eps}.get(
                place, (eps / 4) ** 0.5
            ),
            "max(s, eps)",
        ),
        "no root": (
            lambda eps, place: {"inside": eps / 3, "outside": eps}.get(place, eps / 2),
            "s² = eps / 3",
        ),
        "in words": (lambda eps, place: "sqrt(eps / 3)", "expected a number, got str"),
    },
    "check_masked_moments": {
        "by a product": (_masked_by_product, "0 * NaN"),
        "one number": (lambda x, mask: x[mask[:, None] | (x == x)].mean(), "expected a tuple"),
    },
    "check_porting": {
        "two of three": (lambda m, eps, var, n: (1 - m, eps), "expected a tuple of 3"),
    },
    "check_conv_folding": {
        "no bias": (
            lambda k, b, mean, var, w, shift, eps: _fold(k, 0, mean, var, w, shift, eps),
            "the bias of the linear map",
        ),
    },
}
