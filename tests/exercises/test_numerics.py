"""Right answers pass, and each classic wrong one gets the sentence that names the mistake."""

import numpy as np
import pytest

from normlab.exercises import numerics as exercises


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


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_variance", lambda x: (x**2).mean(1) - x.mean(1) ** 2, "mean of squares minus"),
        (
            "check_variance",
            lambda x: np.maximum((x**2).mean(1) - x.mean(1) ** 2, 0),
            "hides the cancellation",
        ),
        (
            "check_variance",
            lambda x: (x**2).sum(1) / x.shape[1] - (x.sum(1) / x.shape[1]) ** 2 * 1.0000001,
            "subtract the mean before",
        ),
        ("check_variance", lambda x: x.astype(np.float64).var(1, ddof=1), "not by D - 1"),
        ("check_variance", lambda x: x.astype(np.float64).var(0), "for each row"),
        ("check_variance", lambda x: x.astype(np.float64).std(1), "standard deviation"),
        ("check_half_size", lambda eps, place: eps**0.5, "1/sqrt(2)"),
        ("check_half_size", lambda eps, place: eps, "take a root"),
        ("check_half_size", lambda eps, place: (eps / 3) ** 0.5, "eps inside the root"),
        (
            "check_half_size",
            lambda eps, place: (eps / 3) ** 0.5 if place == "inside" else eps,
            "just starts to act",
        ),
        (
            "check_half_size",
            lambda eps, place: (eps / 3) ** 0.5 if place == "inside" else eps / 2,
            "solve s / (s + eps)",
        ),
        (
            "check_merging",
            lambda na, ma, va, nb, mb, vb: (
                na + nb,
                (na * ma + nb * mb) / (na + nb),
                (na * va + nb * vb) / (na + nb),
            ),
            "distance adds",
        ),
        (
            "check_merging",
            lambda na, ma, va, nb, mb, vb: (na + nb, (ma + mb) / 2, (va + vb) / 2),
            "weigh means and variances",
        ),
        ("check_merging", lambda *a: (10, (a[1] + a[4]) / 2, _merge(*a)[2]), "more weight"),
        (
            "check_merging",
            lambda *a: (*_merge(*a)[:2], _merge(*a)[2] * (a[0] + a[3]) / (a[0] + a[3] - 1)),
            "divisor n",
        ),
        ("check_masked_moments", lambda x, mask: (x.mean((0, 2)), x.var((0, 2))), "use the mask"),
        (
            "check_masked_moments",
            lambda x, mask: (
                _masked(x, mask)[0],
                (((x * mask[:, None]) - _masked(x, mask)[0][:, None]) ** 2).sum((0, 2))
                / mask.sum(),
            ),
            "counts (0 - mean)²",
        ),
        (
            "check_masked_moments",
            lambda x, mask: (
                (x * mask[:, None]).mean((0, 2)),
                (x * mask[:, None]).var((0, 2)),
            ),
            "zeros instead of padding",
        ),
        (
            "check_masked_moments",
            lambda x, mask: (
                _masked(x, mask)[0],
                _masked(x, mask)[1] * mask.sum() / (mask.sum() - 1),
            ),
            "not by n - 1",
        ),
        (
            "check_masked_moments",
            lambda x, mask: (
                np.mean([r[:, m].mean(1) for r, m in zip(x, mask, strict=True)], 0),
                _masked(x, mask)[1],
            ),
            "mean of means",
        ),
        ("check_porting", lambda m, eps, var, n: (m, eps, var), "old average"),
        ("check_porting", lambda m, eps, var, n: (1 - m, 1e-5, var), "take eps along"),
        ("check_porting", lambda m, eps, var, n: (1 - m, eps, var * n / (n - 1)), "as it stands"),
        ("check_porting", lambda m, eps, var, n: (1 - m, eps, var**0.5), "holds a variance"),
        ("check_porting", lambda m, eps, var, n: (1 - m, eps, var + eps), "do not add it"),
        (
            "check_conv_folding",
            lambda k, b, m, v, w, s, e: (
                k * (w / np.sqrt(v + e))[None, :, None, None],
                _fold(k, b, m, v, w, s, e)[1],
            ),
            "output channels",
        ),
        (
            "check_conv_folding",
            lambda k, b, m, v, w, s, e: (
                k * (w / np.sqrt(v + e)),
                _fold(k, b, m, v, w, s, e)[1],
            ),
            "last axis",
        ),
        (
            "check_conv_folding",
            lambda k, b, m, v, w, s, e: (
                _fold(k, b, m, v, w, s, e)[0],
                s - w / np.sqrt(v + e) * m,
            ),
            "passes through",
        ),
        (
            "check_conv_folding",
            lambda k, b, m, v, w, s, e: (
                _fold(k, b, m, v, w, s, e)[0],
                w / np.sqrt(v + e) * b + s,
            ),
            "running mean",
        ),
        ("check_conv_folding", lambda k, b, m, v, w, s, e: _fold(k, b, m, v, w, s, 0), "missing"),
        (
            "check_conv_folding",
            lambda k, b, m, v, w, s, e: _fold(k, b, m, (v + e) ** 2 - e, w, s, e),
            "root of the variance",
        ),
        (
            "check_conv_folding",
            lambda k, b, m, v, w, s, e: _fold(k, b, m, v, 1.0, s, e),
            "weight of the norm",
        ),
    ],
)
def test_mistakes_are_named(name, answer, says):
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong: ")
    assert says in verdict
