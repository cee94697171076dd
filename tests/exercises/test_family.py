"""The graders of the chapter on the norms after 2016 accept right answers and name mistakes."""

import math


def _clip(value, low, high):
    return min(max(value, low), high)


def _renorm(x, batch_mean, batch_std, mean, std, r_max, d_max, lowest_r=None, lowest_d=None):
    r = _clip(batch_std / std, 1 / r_max if lowest_r is None else lowest_r, r_max)
    d = _clip((batch_mean - mean) / std, -d_max if lowest_d is None else lowest_d, d_max)
    return (x - batch_mean) / batch_std * r + d


def _response(x, weight, bias, eps, skip=1, over=1, root=0.5, mean=True, inside=True):
    length = x.square().sum((2, 3), keepdim=True) ** root
    all_lengths = length.mean(over, keepdim=True) if mean else length.sum(over, keepdim=True)
    relative = length / (all_lengths + eps * inside)
    return weight[:, None, None] * x * relative + bias[:, None, None] + skip * x


RIGHT = {
    "check_rms_weight": lambda g, size: g / math.sqrt(size),
    "check_batch_renorm": _renorm,
    "check_global_response": _response,
}
