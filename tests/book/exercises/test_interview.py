"""The answers that the test of every check feeds to those of the blank page."""

import numpy as np
import torch
from right_answers import cases_of
from torch.nn import functional

from normlab.book.exercises import interview as exercises
from normlab.book.exercises.grading import random


def rows(v):
    return v.mean(-1, keepdim=True)


def forward(x, weight, bias, eps):
    centered = x - rows(x)
    rstd = (rows(centered**2) + eps).rsqrt()
    x_hat = centered * rstd
    return x_hat * weight + bias, (x_hat, rstd, weight)


def backward(dy, cache):
    x_hat, rstd, weight = cache
    g = dy * weight
    dx = rstd * (g - rows(g) - x_hat * rows(g * x_hat))
    return dx, (dy * x_hat).sum(0), dy.sum(0)


def without_mean(dy, cache):
    x_hat, rstd, weight = cache
    g = dy * weight
    return rstd * (g - x_hat * rows(g * x_hat)), (dy * x_hat).sum(0), dy.sum(0)


def averaged(dy, cache):
    dx, dweight, dbias = backward(dy, cache)
    return dx, dweight / dy.shape[0], dbias


def batch(x, mean, var, weight, bias, training, momentum, eps, bessel=True, new=None):
    new = momentum if new is None else new(momentum)
    if training:
        m = x.mean(0)
        v = (x - m).square().mean(0)
        with torch.no_grad():
            n = x.shape[0]
            mean.lerp_(m.to(mean.dtype), new)
            var.lerp_((v * n / (n - 1) if bessel else v).to(var.dtype), new)
    else:
        m, v = mean, var
    return (x - m) * (v + eps).rsqrt() * weight + bias


def rms(input, normalized_shape, weight=None, eps=None):
    x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    dims = tuple(range(-len(normalized_shape), 0))
    y = x * (x.square().mean(dims, keepdim=True) + eps).rsqrt()
    return (y if weight is None else y * weight).to(input.dtype)


def by_rows(x, weight, bias, eps):
    # an empty x, of which the text frees the answer, would have nothing to stack
    made = [forward(row[None], weight, bias, eps) for row in x]
    y, x_hat, rstd = (
        torch.cat(parts) for parts in zip(*((m[0], *m[1][:2]) for m in made), strict=True)
    )
    return [y, {"x_hat": x_hat, "rstd": rstd, "weight": weight}]


def by_matrices(dy, cache):
    x_hat, rstd, weight = cache["x_hat"], cache["rstd"], cache["weight"]
    n = x_hat.shape[1]
    jacobian = torch.eye(n, dtype=dy.dtype) - (1 + x_hat[:, :, None] * x_hat[:, None, :]) / n
    dx = rstd * (jacobian @ (dy * weight)[..., None])[..., 0]
    return [dx, torch.einsum("nd,nd->d", dy, x_hat), torch.einsum("nd->d", dy)]


def batch_by_names(x, running_mean, running_var, weight, bias, training, momentum, eps):
    if not training:
        return (x - running_mean) / (running_var + eps).sqrt() * weight + bias
    var, mean = torch.var_mean(x, 0, correction=0)
    n = x.shape[0]
    running_mean *= 1 - momentum
    running_mean += momentum * mean.detach().to(running_mean)
    running_var *= 1 - momentum
    running_var += momentum * (var * n / (n - 1)).detach().to(running_var)
    return (x - mean) / (var + eps).sqrt() * weight + bias


def rms_by_length(input, normalized_shape, weight=None, eps=None):
    wide = torch.promote_types(input.dtype, torch.float32)
    x = input.to(wide).flatten(-len(normalized_shape))
    mean_square = (x * x).sum(-1) / max(x.shape[-1], 1)
    root = (mean_square + (torch.finfo(wide).eps if eps is None else eps)).sqrt()
    y = (x / root[..., None]).view(input.shape)
    return (y if weight is None else weight * y).type_as(input)


def rms_with_eps_of_input(input, normalized_shape, weight=None, eps=None):
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return rms(input, normalized_shape, weight, eps)


def rms_of_the_last_axis(input, normalized_shape, weight=None, eps=None):
    x = input.float()
    y = x * (x.square().mean(-1, keepdim=True) + (eps or 1e-6)).rsqrt()
    return (y if weight is None else y * weight).to(input.dtype)


def rms_without_zero(input, normalized_shape, weight=None, eps=None):
    return rms(input, normalized_shape, weight, eps or None)


def rms_by_rows(input, normalized_shape, weight=None, eps=None):
    y = rms(input, normalized_shape, None, eps)
    return y if weight is None else y * weight[:, None]


def running_always(x, mean, var, weight, bias, training, momentum, eps):
    if training:
        batch(x, mean, var, weight, bias, training, momentum, eps)
    return batch(x, mean, var, weight, bias, False, momentum, eps)


def forward_in_numpy(x, weight, bias, eps):
    x, weight, bias = map(np.asarray, (x, weight, bias))
    centered = x - x.mean(-1, keepdims=True)
    std = np.sqrt((centered**2).mean(-1, keepdims=True) + eps)
    return centered / std * weight + bias, (centered / std, 1 / std, weight)


def backward_in_numpy(dy, cache):
    dy, (x_hat, rstd, weight) = np.asarray(dy), map(np.asarray, cache)
    g = dy * weight
    bar = (g * x_hat).mean(-1, keepdims=True)
    dx = rstd * (g - g.mean(-1, keepdims=True) - x_hat * bar)
    return dx, (dy * x_hat).sum(0), dy.sum(0)


def forward_with(y):
    """The right cache, but another output."""
    return lambda x, weight, bias, eps: (y(x, weight, bias, eps), forward(x, weight, bias, eps)[1])


def bessel(x, weight, bias, eps):
    return (x - rows(x)) / (x.var(-1, keepdim=True) + eps).sqrt() * weight + bias


def outside(x, weight, bias, eps):
    return (x - rows(x)) / (x.var(-1, correction=0, keepdim=True).sqrt() + eps) * weight + bias


def one_pass(x, weight, bias, eps):
    var = rows(x**2) - rows(x) ** 2
    return (x - rows(x)) * (var + eps).clamp(eps).rsqrt() * weight + bias


def weight_by_row(x, weight, bias, eps):
    return forward(x, weight**0, 0 * bias, eps)[0] * weight[:, None] + bias


def by_autograd(dy, cache):
    x_hat, rstd, weight = cache
    with torch.enable_grad():
        x = (x_hat / rstd).detach().requires_grad_()
        y = (x - rows(x)) / rows((x - rows(x)) ** 2).sqrt() * weight
        return torch.autograd.grad(y, x, dy)[0], (dy * x_hat).sum(0), dy.sum(0)


def by_hand(correction=0):
    table = torch.tensor(exercises.TABLE, dtype=torch.float64)
    row, column = table[0], table[:, 0]
    layer, over_batch = ((v - v.mean()) / v.std(correction=correction) for v in (row, column))
    root_mean_square = row / row.square().mean().sqrt()
    return tuple(v[0].item() for v in (layer, over_batch, root_mean_square))


def cut_off(values):
    return tuple(int(100 * value) / 100 for value in values)


RIGHT = {
    "check_layer_norm_pair": (forward, backward),
    "check_batch_norm": batch,
    "check_rms_norm": rms,
    "check_by_hand": lambda: by_hand(),
    "check_diagnosis": lambda: "backward_without_mean_term",
}
OTHER = {
    "check_layer_norm_pair": (by_rows, by_matrices),
    "check_batch_norm": batch_by_names,
    "check_rms_norm": rms_by_length,
    "check_by_hand": lambda: cut_off(by_hand()),
    "check_diagnosis": lambda: "_".join(["backward", "without", "mean", "term"]),
}
AS_TORCH = {"check_layer_norm_pair", "check_batch_norm", "check_rms_norm"}
WRONG = {
    "check_layer_norm_pair": {
        "x.var()": ((forward_with(bessel), backward), "n-1"),
        "eps outside": ((forward_with(outside), backward), "outside"),
        "one pass": ((forward_with(one_pass), backward), "mean(x"),
        "the weight on the rows": ((forward_with(weight_by_row), backward), "RuntimeError"),
        "no mean": ((forward, without_mean), "mean"),
        "averaged": ((forward, averaged), "weight"),
        "dweight of shape (1, D)": (
            (forward, lambda dy, c: [g[None] if g.dim() == 1 else g for g in backward(dy, c)]),
            "dweight has the shape of what it belongs to: expected (4,), got (1, 4)",
        ),
        "autograd": ((forward, by_autograd), "asks for the gradient by hand"),
        "in NumPy": (
            (forward_in_numpy, backward_in_numpy),
            "y: expected a torch tensor, got ndarray",
        ),
        "backward in NumPy": (
            (forward, backward_in_numpy),
            "dx: expected a torch tensor, got ndarray",
        ),
        "no cache": ((lambda *a: forward(*a)[0], backward), "expected (y, cache)"),
        "dx only": ((forward, lambda *a: backward(*a)[0]), "expected (dx, dweight, dbias)"),
    },
    "check_batch_norm": {
        "no Bessel": (lambda *a: batch(*a, bessel=False), "Bessel"),
        "the other momentum": (lambda *a: batch(*a, new=lambda m: 1 - m), "momentum"),
        "running statistics always": (running_always, "in training the batch is normalized"),
        "old running statistics": (
            lambda x, mean, var, *rest: (
                batch(x, mean.clone(), var.clone(), *rest[:2], False, *rest[3:])
                + 0 * batch(x, mean, var, *rest)
            ),
            "in training the batch is normalized",
        ),
        "training always": (lambda *a: batch(*a[:5], True, *a[6:]), "eval"),
        "the weight on the rows": (
            lambda x, mean, var, weight, bias, *rest: (
                batch(x, mean, var, weight**0, 0 * bias, *rest) * weight[:, None] + bias
            ),
            "RuntimeError",
        ),
        "new buffers": (
            lambda x, mean, var, *rest: batch(x, mean.clone(), var.clone(), *rest),
            "the running statistics do not move",
        ),
        "a call that does it all": (functional.batch_norm, "it calls batch_norm"),
    },
    "check_rms_norm": {
        "layer norm": (
            lambda x, n, w=None, eps=None: functional.layer_norm(x, n, w),
            "is LayerNorm",
        ),
        "the last axis alone": (rms_of_the_last_axis, "all axes of normalized_shape"),
        "eps or None": (rms_without_zero, "ask whether it is None"),
        "another eps": (lambda x, n, w=None, eps=None: rms(x, n, w, eps or 1e-8), "eps is 1e-08"),
        "eps of the input's dtype": (
            rms_with_eps_of_input,
            "the machine epsilon of the dtype that you compute in",
        ),
        "the weight on the rows": (rms_by_rows, "RuntimeError"),
        "float32 comes back": (
            lambda x, n, w=None, eps=None: rms(
                x.float() if x.dtype in exercises.HALF else x, n, w, eps
            ),
            "dtype",
        ),
        "a call that does it all": (functional.rms_norm, "it calls rms_norm"),
    },
    "check_by_hand": {
        "n - 1, two decimals": (
            lambda: tuple(round(value, 2) for value in by_hand(correction=1)),
            "n, not n - 1",
        ),
        "one decimal": (
            lambda: tuple(round(value, 1) for value in by_hand()),
            "two decimals are asked for",
        ),
        "one value is off": (
            lambda: (by_hand()[0] + 0.015, *by_hand()[1:]),
            "value 1 of 3 is close",
        ),
    },
    "check_diagnosis": {
        "a mistake of the outputs": (lambda: "wrong_axis", "look at the gradients"),
        "another one of the outputs": (lambda: "eps_outside", "look at the gradients"),
        "another gradient": (lambda: "detached_statistics", "other gradients"),
        "no name of the list": (lambda: "eps", "expected one of"),
    },
}


def test_a_missing_backward_is_no_answer():
    assert exercises.check_layer_norm_pair(forward, lambda *_: None) == "not answered yet"


def test_rounding_by_hand_hides_no_mistake():
    (question,) = cases_of(exercises.check_by_hand)
    for mistake, values in question.mistakes.items():
        for rounded in (tuple(round(float(v), 2) for v in values), cut_off(values)):
            assert exercises.check_by_hand(lambda v=rounded: v) == f"wrong: {mistake}"


def test_the_wrong_layer_is_right_forward_and_its_name_does_not_tell():
    x = (1e-2 * random(3, 4, seed=0) + 0.1).requires_grad_()
    weight, dy = random(4, seed=1), random(3, 4, seed=2)
    ys = [f(x, (4,), weight) for f in (exercises.wrong_layer, functional.layer_norm)]
    torch.testing.assert_close(*ys)
    wrong, right = (torch.autograd.grad(y, x, dy)[0] for y in ys)
    assert not torch.allclose(wrong, right, rtol=1e-3)
    assert exercises.wrong_layer.__name__ == "wrong_layer"
