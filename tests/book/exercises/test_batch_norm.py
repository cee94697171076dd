"""The answers that the test of every check feeds to those of the batch norm chapter."""

import numpy as np
import torch


def restoring(mean, var, eps):
    return (var + eps).sqrt(), mean


def running(mean, var, count, momentum, steps):
    running_mean, running_var = 0.0, 1.0
    for _ in range(steps):
        running_mean += momentum * (mean - running_mean)
        running_var += momentum * (var * count / (count - 1) - running_var)
    return running_mean, running_var


def running_at_once(mean, var, count, momentum, steps, *, unbiased=None, new=None):
    kept = (1 - (momentum if new is None else new)) ** steps
    unbiased = var * count / (count - 1) if unbiased is None else unbiased
    return mean * (1 - kept), kept + unbiased * (1 - kept)


def channel(x, eps, *, axes=(0, 2, 3), correction=0):
    var, mean = torch.var_mean(x, axes, correction=correction, keepdim=True)
    return (x - mean) / (var + eps).sqrt()


def channel_in_numpy(x, eps):
    flat = np.moveaxis(np.asarray(x), 1, 0).reshape(x.shape[1], -1)
    flat = (flat - flat.mean(1, keepdims=True)) / np.sqrt(flat.var(1, keepdims=True) + eps)
    n, c, *rest = x.shape
    return np.moveaxis(flat.reshape(c, n, *rest), 0, 1)


def folded(linear_weight, linear_bias, mean, var, weight, bias, eps):
    # the columns of the map are its values at the unit vectors, its bias is its value at 0
    inputs = linear_weight.shape[1]
    units = torch.cat([torch.zeros(1, inputs), torch.eye(inputs)]).double()
    probes = units @ linear_weight.T + linear_bias
    y = torch.nn.functional.batch_norm(probes, mean, var, weight, bias, eps=eps)
    return (y[1:] - y[0]).T, y[0]


def folded_by_factor(matrix, a, mean, var, weight, bias, eps):
    factor = weight / (var + eps).sqrt()
    return torch.diag(factor) @ matrix, factor * (a - mean) + bias


def gradient(dx_hat, x_hat, rstd):
    return rstd * (dx_hat - dx_hat.mean(0) - x_hat * (dx_hat * x_hat).mean(0))


def gradient_by_matrices(dx_hat, x_hat, rstd):
    n, features = x_hat.shape
    columns = []
    for c in range(features):
        h = x_hat[:, c]
        jacobian = torch.eye(n) - 1 / n - torch.outer(h, h) / n
        columns.append(rstd[c] * jacobian @ dx_hat[:, c])
    return torch.stack(columns, 1)


def gradient_by_autograd(dx_hat, x_hat, rstd):
    x = (x_hat / rstd).clone().requires_grad_()
    mean, var = x.mean(0), x.var(0, correction=0)
    return torch.autograd.grad((x - mean) / (var + 0.01).sqrt(), x, dx_hat)[0]


RIGHT = {
    "check_restoring_parameters": restoring,
    "check_running_statistics": running,
    "check_channel_norm": channel,
    "check_folding": folded,
    "check_input_gradient": gradient,
}
OTHER = {
    "check_restoring_parameters": lambda m, v, eps: [np.sqrt(np.asarray(v) + eps), m.tolist()],
    "check_running_statistics": running_at_once,
    "check_channel_norm": channel_in_numpy,
    "check_folding": folded_by_factor,
    "check_input_gradient": gradient_by_matrices,
}
WRONG = {
    "check_restoring_parameters": {
        "eps is forgotten": (lambda m, v, eps: (v.sqrt(), m), "sqrt(var) gives back too little"),
        "eps outside the root": (lambda m, v, eps: (v.sqrt() + eps, m), "eps outside the root"),
        "the variance": (lambda m, v, eps: (v + eps, m), "not a variance"),
        "the bias of the layer": (lambda m, v, eps: ((v + eps).sqrt(), -m), "its sign is plus"),
        "exchanged": (lambda m, v, eps: (m, (v + eps).sqrt()), "in reversed order"),
    },
    "check_running_statistics": {
        "no Bessel": (
            lambda m, v, n, a, k: running_at_once(m, v, n, a, k, unbiased=v),
            "Bessel's correction is missing in the running variance",
        ),
        "the other direction": (
            lambda m, v, n, a, k: running_at_once(m, v, n, 1 - a, k),
            "momentum is the weight of the old value",
        ),
        "the first batch replaces": (
            lambda m, v, n, a, k: (m, v * n / (n - 1)),
            "the first batch is not special",
        ),
        "a number": (lambda m, v, n, a, k: m, "expected a tuple of 2 values, got float"),
    },
    "check_channel_norm": {
        "instance norm": (lambda x, eps: channel(x, eps, axes=(2, 3)), "is instance norm"),
        "layer norm": (lambda x, eps: channel(x, eps, axes=(1, 2, 3)), "is layer norm"),
        "over the batch only": (lambda x, eps: channel(x, eps, axes=0), "positions share it"),
        "x.var()": (lambda x, eps: channel(x, eps, correction=1), "use correction=0"),
        "eps outside": (
            lambda x, eps: (
                (x - x.mean((0, 2, 3), keepdim=True))
                / (x.std((0, 2, 3), correction=0, keepdim=True) + eps)
            ),
            "eps outside the root",
        ),
        "no eps": (lambda x, eps: channel(x, 0.0), "eps is missing"),
        "a call that does it all": (
            lambda x, eps: torch.nn.BatchNorm2d(
                x.shape[1], eps, affine=False, track_running_stats=False
            )(x),
            "it calls batch_norm",
        ),
        "without the last axes": (lambda x, eps: channel(x, eps)[..., 0], "expected shape"),
    },
    "check_folding": {
        "the bias stays": (
            lambda w, a, m, v, g, b, eps: (folded(w, a, m, v, g, b, eps)[0], a + b),
            "value 2 of 2 is wrong",
        ),
        "no bias of the norm": (
            lambda w, a, m, v, g, b, eps: folded(w, a, m, v, g, 0 * b, eps),
            "the bias is not added",
        ),
        "over the inputs": (
            lambda w, a, m, v, g, b, eps: (
                (w.T * (g / (v + eps).sqrt())[: w.shape[1], None]).T
                if w.shape[0] == w.shape[1]
                else w,
                folded(w, a, m, v, g, b, eps)[1],
            ),
            "this scales the last",
        ),
        "no eps": (
            lambda w, a, m, v, g, b, eps: folded_by_factor(w, a, m, v, g, b, 0.0),
            "eps is missing",
        ),
    },
    "check_input_gradient": {
        "autograd": (gradient_by_autograd, "asks for the gradient by hand"),
        "constants": (lambda g, h, r: r * g, "cut from the graph"),
        "no mean": (lambda g, h, r: r * (g - h * (g * h).mean(0)), "through the mean is missing"),
        "divisor N - 1": (
            lambda g, h, r: r * (g - g.mean(0) - h * (g * h).sum(0) / (len(g) - 1)),
            "the divisor of the last term is N",
        ),
        "no variance": (lambda g, h, r: r * (g - g.mean(0)), "through the variance is missing"),
        "sums": (
            lambda g, h, r: r * (g - g.sum(0) - h * (g * h).sum(0)),
            "means over the batch, not sums",
        ),
        "no rstd": (
            lambda g, h, r: g - g.mean(0) - h * (g * h).mean(0),
            "the division by the standard deviation is missing",
        ),
    },
}
