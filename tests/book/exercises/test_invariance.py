"""The answers that the test of every check feeds to those of the invariance chapter."""

import numpy as np
import torch

ALL = {"weight_rescale", "row_rescale", "data_rescale", "case_rescale"}


def rates(lr, decay, steps, *, exponent=lambda t: -(2 * t + 1)):
    t = torch.arange(steps, dtype=torch.float64)
    return lr * (1 - lr * decay) ** exponent(t)


def rates_one_by_one(lr, decay, steps):
    kept, found = 1 - lr * decay, [lr / (1 - lr * decay)]
    while len(found) < steps:
        found.append(found[-1] / kept**2)
    return found


def signs(dw, dx, s):
    return dw / abs(s), dx if s > 0 else -dx


RIGHT = {
    "check_composition": lambda: ALL,
    "check_equivalent_eps": lambda scale, eps: eps / scale**2,
    "check_negative_scale": signs,
    "check_conserved": lambda weight: weight.mean(0),
    "check_equilibrium": lambda lr, wd, g: (lr * g**2 / (wd * (2 - lr * wd))) ** 0.25,
    "check_growing_rates": rates,
}
OTHER = {
    "check_composition": lambda: sorted(ALL),
    "check_equivalent_eps": lambda scale, eps: np.square(np.sqrt(eps) / scale),
    "check_negative_scale": lambda dw, dx, s: [dw.numpy() / np.abs(s), np.sign(s) * dx.numpy()],
    "check_conserved": lambda weight: torch.ones(len(weight)).double() @ weight,
    "check_equilibrium": lambda lr, wd, g: torch.tensor(lr * g**2 / (2 * wd)).sqrt().sqrt(),
    "check_growing_rates": rates_one_by_one,
}
ONE_SIZE = {"check_negative_scale": "signs and factors have nothing to do with sizes"}
WRONG = {
    "check_composition": {
        "constants": (lambda: ALL | {"weight_recenter"}, "about weight_recenter"),
        "no rows": (lambda: ALL - {"row_rescale"}, "about row_rescale"),
        "shifted data": (lambda: ALL | {"data_recenter"}, "about data_recenter"),
        "another name": (lambda: {"rescale"}, "no transformation"),
        "a number": (lambda: 3, "expected a set"),
    },
    "check_equivalent_eps": {
        "times": (lambda s, eps: eps * s**2, "less, not more"),
        "by the scale": (lambda s, eps: eps / abs(s), "a variance, which grows with"),
        "unchanged": (lambda s, eps: eps, "so its effect changes"),
        "a string": (lambda s, eps: "0.5", "expected a number, got str"),
    },
    "check_negative_scale": {
        "positive only": (lambda dw, dx, s: (dw / abs(s), dx), "this is right for"),
        "signed": (lambda dw, dx, s: (dw / s, -dx if s < 0 else dx), "two signs meet"),
        "times": (lambda dw, dx, s: (dw * s, dx), "divided by λ, not multiplied"),
        "dx, too": (lambda dw, dx, s: (dw / abs(s), dx / s), "keeps its size"),
        "a dictionary": (lambda dw, dx, s: {"dx": dx}, "expected a tuple of 2 values"),
    },
    "check_conserved": {
        "the length": (lambda w: w.norm(), "the length of W grows"),
        "rows": (lambda w: w.mean(1), "mean of each row"),
        "one number": (lambda w: w.mean(), "a whole vector"),
        "no weights": (lambda w: torch.zeros(w.shape[1]), "does not depend"),
        "absolute values": (lambda w: w.abs().mean(0), "changes by"),
        "a string": (lambda w: "length", "expected a tensor, got str"),
        "five columns": (lambda w: w[:, :5].mean(0), "a whole vector"),
        "raising": (lambda w: w.nope(), "raised AttributeError"),
    },
    "check_equilibrium": {
        "the gradient at length 1": (lambda lr, wd, g: (lr * g**2 / (2 * wd)) ** 0.5, "is shorter"),
        "the fourth power": (lambda lr, wd, g: lr * g**2 / (2 * wd), "that is the fourth power"),
        "no 2": (lambda lr, wd, g: (lr * g**2 / wd) ** 0.25, "whose change is 2 lr"),
        "no rate": (lambda lr, wd, g: (g**2 / (2 * wd)) ** 0.25, "the growth has its square"),
        "a list": (lambda lr, wd, g: [1.0, 2.0], "expected one number, got shape (2,)"),
    },
    "check_growing_rates": {
        "falling": (lambda *a: rates(*a, exponent=lambda t: 2 * t + 1), "the rate has to grow"),
        "no 2": (lambda *a: rates(*a, exponent=lambda t: -t), "the exponent has a 2 t"),
        "a step early": (lambda *a: rates(*a, exponent=lambda t: -2 * t), "check the first step"),
        "a step late": (lambda *a: rates(*a, exponent=lambda t: -2 * t - 2), "t times, not t + 1"),
        "one rate": (lambda lr, wd, steps: lr, "expected shape (6,), got one number"),
    },
}
