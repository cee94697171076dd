"""The graders of the batch norm exercises: right answers pass, mistakes are named."""

import pytest
import torch

from normlab.exercises import batch_norm as exercises


def restoring(mean, var, eps):
    return (var + eps).sqrt(), mean


def running(mean, var, count, momentum, steps):
    running_mean, running_var = 0.0, 1.0
    for _ in range(steps):
        running_mean += momentum * (mean - running_mean)
        running_var += momentum * (var * count / (count - 1) - running_var)
    return running_mean, running_var


def channel(x, eps):
    return torch.nn.functional.batch_norm(x, None, None, training=True, eps=eps)


def folded(linear_weight, linear_bias, mean, var, weight, bias, eps):
    # the columns of the map are its values at the unit vectors, its bias is its value at 0
    inputs = linear_weight.shape[1]
    units = torch.cat([torch.zeros(1, inputs), torch.eye(inputs)]).double()
    probes = units @ linear_weight.T + linear_bias
    y = torch.nn.functional.batch_norm(probes, mean, var, weight, bias, eps=eps)
    return (y[1:] - y[0]).T, y[0]


def gradient(dx_hat, x_hat, rstd):
    # autograd through a batch that has these normalized values and this scale
    eps = 0.01
    x = (x_hat / rstd).clone().requires_grad_()
    y = torch.nn.functional.batch_norm(x, None, None, training=True, eps=eps)
    return torch.autograd.grad(y, x, dx_hat)[0]


def synchronized(means, variances, counts):
    second = variances + means.square()
    share = (counts / counts.sum())[:, None]
    mean = (share * means).sum(0)
    return mean, (share * second).sum(0) - mean.square()


RIGHT = {
    "check_restoring_parameters": restoring,
    "check_running_statistics": running,
    "check_channel_norm": channel,
    "check_folding": folded,
    "check_input_gradient": gradient,
    "check_synchronized_moments": synchronized,
}


MISTAKES = [
    (
        exercises.check_restoring_parameters,
        lambda mean, var, eps: (var.sqrt(), mean),
        "too little",
    ),
    (
        exercises.check_restoring_parameters,
        lambda mean, var, eps: (1 / (var + eps).sqrt(), -mean / (var + eps).sqrt()),
        "inverses",
    ),
    (
        exercises.check_running_statistics,
        lambda mean, var, count, momentum, steps: running(mean, var, 1e12, momentum, steps),
        "Bessel-corrected",
    ),
    (
        exercises.check_running_statistics,
        lambda mean, var, count, momentum, steps: running(mean, var, count, 1 - momentum, steps),
        "momentum is the weight of the new batch",
    ),
    (
        exercises.check_running_statistics,
        lambda mean, var, count, momentum, steps: running(mean, var, count, 1.0, steps),
        "first batch is not special",
    ),
    (
        exercises.check_channel_norm,
        lambda x, eps: torch.nn.functional.instance_norm(x, eps=eps),
        "instance norm",
    ),
    (
        exercises.check_channel_norm,
        lambda x, eps: torch.nn.functional.layer_norm(x, x.shape[1:], eps=eps),
        "layer norm",
    ),
    (
        exercises.check_channel_norm,
        lambda x, eps: (
            (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), keepdim=True) + eps).sqrt()
        ),
        "biased variance",
    ),
    (
        exercises.check_folding,
        lambda W, b, m, v, w, c, eps: (
            W * (w / (v + eps).sqrt()),
            folded(W, b, m, v, w, c, eps)[1],
        ),
        "columns",
    ),
    (
        exercises.check_folding,
        lambda W, b, m, v, w, c, eps: (
            folded(W, b, m, v, w, c, eps)[0],
            folded(W, 0 * b, m, v, w, c, eps)[1],
        ),
        "bias of the linear layer is missing",
    ),
    (exercises.check_input_gradient, lambda g, x_hat, rstd: rstd * g, "constants"),
    (
        exercises.check_input_gradient,
        lambda g, x_hat, rstd: rstd * (g - g.mean(0)),
        "variance depends on x",
    ),
    (
        exercises.check_synchronized_moments,
        lambda m, v, n: (synchronized(m, v, n)[0], synchronized(0 * m, v, n)[1]),
        "forgets that the means",
    ),
    (
        exercises.check_synchronized_moments,
        lambda m, v, n: synchronized(m, v, torch.ones_like(n)),
        "more samples weigh more",
    ),
]


@pytest.mark.parametrize(("check", "answer", "sentence"), MISTAKES)
def test_mistakes_are_named(check, answer, sentence):
    verdict = check(answer)
    assert verdict.startswith("wrong: ")
    assert sentence in verdict
