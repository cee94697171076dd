"""The graders of the batch norm exercises: right answers pass, mistakes are named."""

import torch


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
