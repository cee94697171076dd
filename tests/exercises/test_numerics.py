"""Right answers pass, and each classic wrong one gets the sentence that names the mistake."""

import numpy as np


def _merge(na, ma, va, nb, mb, vb):
    n = na + nb
    return n, (na * ma + nb * mb) / n, (na * va + nb * vb) / n + na * nb * (ma - mb) ** 2 / n**2


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
    "check_merging": _merge,
    "check_masked_moments": _masked,
    "check_porting": lambda m, eps, var, n: (1 - m, eps, var),
    "check_conv_folding": _fold,
}
