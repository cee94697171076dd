"""The graders of the RMSNorm chapter accept right answers and name each mistake."""

import torch

from normlab.layers import rms_norm


def _mean(v):
    return v.mean(-1, keepdim=True)


def _gradient(dy, x, weight, eps):
    rrms = (_mean(x**2) + eps).rsqrt()
    x_hat, g = x * rrms, dy * weight
    return rrms * (g - x_hat * _mean(g * x_hat))


RIGHT = {
    "check_rms_norm": lambda x, w, eps: x * (_mean(x**2) + eps).rsqrt() * w,
    "check_rms_gradient": _gradient,
    "check_jacobian_rank": lambda features, size_of_eps: features - (size_of_eps == 0),
    "check_half_precision": lambda x, w, eps: (
        x.float() * (_mean(x.float() ** 2) + eps).rsqrt() * w.float()
    ).half(),
    "check_fold_into_linear": lambda a, c, w, b: (a * w, c + a @ b),
}


def _gradient_of_layer_norm(dy, x, weight, eps):
    centered, g = x - _mean(x), dy * weight
    rstd = (_mean(centered**2) + eps).rsqrt()
    return rstd * (g - _mean(g) - centered * rstd * _mean(g * centered * rstd))


def _gradient_in_sums(dy, x, weight, eps):
    size, g = x.shape[-1], dy * weight
    square = (x * x).sum(-1, keepdim=True) / size + eps
    return g / square.sqrt() - x * (g * x).sum(-1, keepdim=True) / size / square**1.5


def _by_autograd(dy, x, weight, eps):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(RIGHT["check_rms_norm"](leaf, weight, eps), leaf, dy)[0]


def _half(x, w, eps):
    x, w = x.to(torch.float32), w.to(torch.float32)
    return (w * x / (_mean(x * x) + eps).sqrt()).to(torch.float16)


OTHER = {
    "check_rms_norm": lambda x, w, eps: torch.einsum(
        "...d,d->...d", x / torch.sqrt(torch.mean(x * x, -1)[..., None] + eps), w
    ),
    "check_rms_gradient": _gradient_in_sums,
    "check_jacobian_rank": lambda features, size_of_eps: (
        features if size_of_eps > 0 else features - 1
    ),
    "check_half_precision": _half,
    "check_fold_into_linear": lambda a, c, w, b: [a @ w.diag(), c + (a * b).sum(1)],
}
AS_TORCH = {"check_half_precision"}
WRONG = {
    "check_rms_norm": {
        "torch's own": (
            lambda x, w, eps: torch.nn.functional.rms_norm(x, w.shape, w, eps),
            "it calls rms_norm",
        ),
        "1 + weight": (lambda x, w, eps: x * (_mean(x**2) + eps).rsqrt() * (1 + w), "1 + weight"),
        "a clamp": (lambda x, w, eps: x / _mean(x**2).clamp(min=eps).sqrt() * w, "a clamp"),
        "eps outside": (lambda x, w, eps: x / (_mean(x**2).sqrt() + eps) * w, "eps outside"),
        "centered": (
            lambda x, w, eps: (x - _mean(x)) * (_mean((x - _mean(x)) ** 2) + eps).rsqrt() * w,
            "this is LayerNorm",
        ),
    },
    "check_rms_gradient": {
        "by autograd": (_by_autograd, "by hand"),
        "of the sum": (lambda dy, x, w, eps: _gradient(dy, x, 1.0, eps), "weight"),
        "no eps": (lambda dy, x, w, eps: _gradient(dy, x, w, 0.0), "eps belongs into"),
        "layer norm's": (_gradient_of_layer_norm, "that is LayerNorm's gradient"),
    },
    "check_jacobian_rank": {
        "layer norm's": (lambda features, size_of_eps: features - 2, "LayerNorm's"),
        "with eps, too": (
            lambda features, size_of_eps: features - 1,
            "with eps > 0 stretching",
        ),
    },
    "check_half_precision": {
        "squared in float16": (
            lambda x, w, eps: x * (_mean(x**2) + eps).rsqrt() * w,
            "the output is 0",
        ),
        "clipped": (
            lambda x, w, eps: (
                x.clamp(-100, 100) / (_mean(x.clamp(-100, 100).float() ** 2) + eps).sqrt() * w
            ).half(),
            "off by",
        ),
        "rounded twice": (
            lambda x, w, eps: (x.float() * (_mean(x.float() ** 2) + eps).rsqrt()).half() * w,
            "rounded more than once",
        ),
        "left in float32": (
            lambda x, w, eps: rms_norm(x.float(), x.shape[-1:], w.float(), eps),
            "expected dtype torch.float16, got torch.float32",
        ),
        "divided by 0": (
            lambda x, w, eps: (
                _half(x, w, eps) if x.abs().max() > 1 else x / (_mean(x**2) + eps).sqrt() * w
            ),
            "not finite",
        ),
        "a number": (lambda x, w, eps: 3, "expected a torch tensor, got int"),
        "in NumPy": (
            lambda x, w, eps: _half(x, w, eps).numpy(),
            "expected a torch tensor, got ndarray",
        ),
        "one row": (lambda x, w, eps: _half(x, w, eps)[0], "expected a tensor of shape (8, 48)"),
        "no eps": (lambda x, w, eps: _half(x, w, 0.0), "eps"),
    },
    "check_fold_into_linear": {
        "without c": (lambda a, c, w, b: (a * w, a @ b), "add c"),
        "the matrix alone": (lambda a, c, w, b: a * w, "expected a tuple of 2"),
    },
}
