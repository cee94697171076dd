"""Is this residual block what its name says, and which matrices does its initialization scale?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from normlab.checks.report import Failure, Report
from normlab.layers import LayerNorm

__all__ = ["ResidualName", "check_deep_norm_init", "check_residual"]

ResidualName = Literal["post_norm", "pre_norm", "deep_norm"]
Map = Callable[[Tensor], Tensor]
Formula = Callable[[Tensor, Map, Map, float], Tensor]  # of x, F, norm, alpha

FORMULAS: dict[str, Formula] = {
    "post_norm": lambda x, f, norm, a: norm(x + f(x)),
    "pre_norm": lambda x, f, norm, a: x + f(norm(x)),
    "deep_norm": lambda x, f, norm, a: norm(a * x + f(x)),
}

# name of the mistake -> sentence and formula; the first one that explains the output is reported
MISTAKES: dict[str, tuple[str, Formula]] = {
    "alpha on the branch": (
        "alpha multiplies the branch, norm(x + alpha F(x)); it belongs to the skip",
        lambda x, f, norm, a: norm(x + a * f(x)),
    ),
    "alpha on the sum": (
        "alpha multiplies the sum, norm(alpha (x + F(x))), and the norm divides it out again; "
        "it belongs to the skip alone",
        lambda x, f, norm, a: norm(a * (x + f(x))),
    ),
    "one over alpha": (
        "the skip is divided by alpha, norm(x / alpha + F(x)); multiply it",
        lambda x, f, norm, a: norm(x / a + f(x)),
    ),
    "no residual": (
        "the branch is missing, norm(alpha x): there is no residual sum",
        lambda x, f, norm, a: norm(a * x),
    ),
    "no skip": (
        "the skip is missing, norm(F(x)): there is no residual sum",
        lambda x, f, norm, a: norm(f(x)),
    ),
    "skip outside the norm": (
        "only the branch is normalized, alpha x + norm(F(x)); the norm belongs around the sum",
        lambda x, f, norm, a: a * x + norm(f(x)),
    ),
    "second skip": (
        "x is added once more after the norm, x + norm(alpha x + F(x))",
        lambda x, f, norm, a: x + norm(a * x + f(x)),
    ),
    "no norm": ("nothing is normalized, alpha x + F(x)", lambda x, f, norm, a: a * x + f(x)),
    "norm before the branch": (
        "the norm stands before the branch, alpha x + F(norm(x)); here it comes after the sum",
        lambda x, f, norm, a: a * x + f(norm(x)),
    ),
    "norm after the sum": (
        "the norm stands after the sum, norm(x + F(x)); here it comes before the branch",
        lambda x, f, norm, a: norm(x + f(x)),
    ),
    "skip behind the norm": (
        "the skip takes the normalized input, norm(x) + F(norm(x)); it should take x",
        lambda x, f, norm, a: norm(x) + f(norm(x)),
    ),
}


def _parts() -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    """A nonlinear branch, a norm whose eps can be seen, an input and an upstream gradient."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        branch = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6)).double()
        # with eps = 0 a factor on the sum would leave no trace at all
        norm = LayerNorm(6, eps=0.3).double()
        with torch.no_grad():
            for p in norm.parameters():
                p.copy_(torch.rand_like(p) + 0.5)
        return branch, norm, torch.randn(4, 3, 6).double(), torch.randn(4, 3, 6).double()


def _same(got: Tensor, expected: Tensor) -> bool:
    return got.shape == expected.shape and torch.allclose(got, expected, rtol=1e-9, atol=1e-9)


def _gradients(y: Tensor, dy: Tensor, x: Tensor, branch: nn.Module) -> list[Tensor]:
    """By the input and by the branch; zeros where the output does not depend on it."""
    wanted = [x, *branch.parameters()]
    if not y.requires_grad:
        return [torch.zeros_like(w) for w in wanted]
    return list(torch.autograd.grad(y, wanted, dy, allow_unused=True, materialize_grads=True))


def _diagnose(got: Tensor, x: Tensor, branch: Map, norm: Map, like: str, alpha: float) -> Failure:
    # the right place without alpha is a mistake of its own
    if like == "deep_norm" and _same(got, norm(x + branch(x))):
        return Failure("formula", "alpha is missing: this is Post-LN", "alpha missing")
    for mistake, (sentence, formula) in MISTAKES.items():
        if like != "deep_norm" and "alpha" in mistake:
            continue
        for factor in (alpha, 1.0):
            if _same(got, formula(x, branch, norm, factor)):
                sentence = sentence if factor != 1.0 else sentence.replace("alpha ", "")
                return Failure("formula", sentence, mistake)
    gap = (got - FORMULAS[like](x, branch, norm, alpha)).abs().max().item()
    return Failure("formula", f"off by {gap:.2g} from its formula; no known mistake explains it")


def check_residual(build: Callable[..., Any], *, like: ResidualName = "deep_norm") -> Report:
    """Compare a residual block with its formula, in float64, and name the likely mistake.

    Args:
        build: called as `build(sublayer, norm, alpha)` for "deep_norm", as
            `build(sublayer, norm)` for the others; returns a module or function of x. A class
            with a keyword `alpha` is wrapped in a lambda.
        like: "post_norm", norm(x + F(x)); "pre_norm", x + F(norm(x)); or "deep_norm",
            norm(alpha x + F(x)).

    Returns:
        A report with the checks "formula" and "gradient", the latter by the input and by the
        parameters of the branch, from a random upstream gradient.

    Raises:
        ValueError: `like` is unknown.

    Source:
        xiong2020layer, Table 1; wang2022deepnet, Section 4.1.

    Example:
        >>> from normlab.residual import PostNorm
        >>> check_residual(PostNorm, like="post_norm").passed
        True
    """
    if like not in get_args(ResidualName):
        raise ValueError(f"like: got {like!r}; expected {', '.join(get_args(ResidualName))}")
    branch, norm, x, dy = _parts()
    x.requires_grad_()
    report = Report(like, checks=["formula", "gradient"])
    for alpha in (0.81, 2.5) if like == "deep_norm" else (1.0,):
        block = build(branch, norm, alpha) if like == "deep_norm" else build(branch, norm)
        if isinstance(block, nn.Module):
            block.double().eval()
        try:
            got = block(x)
        except Exception as error:  # the block under test may fail in any way
            report.failures.append(Failure("formula", f"it raised {type(error).__name__}: {error}"))
            return report
        report.cases += 1
        expected = FORMULAS[like](x, branch, norm, alpha)
        if got.shape != expected.shape:
            shapes = f"returned shape {tuple(got.shape)} for {tuple(x.shape)}"
            report.failures.append(Failure("formula", shapes))
            return report
        if not _same(got, expected):
            report.failures.append(_diagnose(got, x, branch, norm, like, alpha))
            return report
        ours, right = (_gradients(y, dy, x, branch) for y in (got, expected))
        if not all(_same(a, b) for a, b in zip(ours, right, strict=True)):
            sentence = "the output is right and its gradient is not; is a part of it detached?"
            report.failures.append(Failure("gradient", sentence, "gradient cut"))
            return report
    return report


GAINS = {
    "q_proj": ("query", False),
    "k_proj": ("key", False),
    "v_proj": ("value", True),
    "out_proj": ("attention output", True),
    "linear1": ("feed-forward", True),
    "linear2": ("feed-forward", True),
}


def _gain(weight: Tensor) -> float:
    """Gain of Xavier's rule that the entries show."""
    fan_out, fan_in = weight.shape
    return (weight.detach().double().square().mean() * (fan_in + fan_out) / 2).sqrt().item()


def _close(a: float, b: float) -> bool:
    return abs(a / b - 1) < 0.05  # nine standard errors of 16384 entries


def _name_mistake(gains: Mapping[str, float], beta: float) -> tuple[str, str]:
    scaled = [name for name, (_, wanted) in GAINS.items() if wanted]
    plain = [name for name in GAINS if name not in scaled]
    if all(_close(gains[name], 1.0) for name in GAINS):
        return "beta missing", "all matrices have gain 1; beta scales four of the six kinds"
    for gain, mistake, sentence in (
        (1 / beta, "beta inverted", "these matrices start larger, by 1 / beta, not smaller"),
        (beta**0.5, "beta on the variance", "beta scales the variance; it scales the entries"),
        (beta**2, "beta twice", "beta is applied twice"),
    ):
        if all(_close(gains[name], gain) for name in scaled):
            return mistake, sentence
    if all(_close(gains[name], beta) for name in plain):
        return "beta on query and key", "query and key are scaled by beta; they keep gain 1"
    kinds = {GAINS[name][0] for name in scaled if _close(gains[name], 1.0)}
    for kind in ("value", "attention output", "feed-forward"):
        if kinds == {kind}:
            noun = "matrices" if kind == "feed-forward" else "projection"
            return f"beta missing on the {kind} {noun}", f"the {kind} {noun} kept gain 1"
    fan_in = all(_close(gains[n], beta) for n in ("v_proj", "out_proj"))
    if fan_in and not any(_close(gains[n], beta) for n in ("linear1", "linear2")):
        return "wrong fan", "not Xavier's rule: its variance is 2 over the sum of both fans"
    return "", "gains are " + ", ".join(f"{name} {gains[name]:.2f}" for name in GAINS)


def check_deep_norm_init(init: Callable[[nn.Module, float], Any], *, beta: float = 0.25) -> Report:
    """Measure the gain that an initialization gives each matrix of a Transformer layer.

    Args:
        init: called as `init(block, beta)`, changes `block` in place. The block has linear
            layers `q_proj`, `k_proj`, `v_proj`, `out_proj` (128 to 128), `linear1` (128 to
            256) and `linear2` (256 to 128).
        beta: gain to ask for.

    Returns:
        A report with the checks "gains" and "biases" (which are left as they are).

    Source:
        wang2022deepnet, Figure 2; the rule itself is glorot2010understanding, Eq. 12.
    """
    sizes = dict.fromkeys(GAINS, (128, 128)) | {"linear1": (128, 256), "linear2": (256, 128)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        block = nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()})
        biases = {
            name: p.detach().clone() for name, p in block.named_parameters() if "bias" in name
        }
        init(block, beta)
    report = Report("deep_norm_init", checks=["gains", "biases"], cases=len(GAINS))
    weights = {name: block.get_parameter(f"{name}.weight") for name in GAINS}
    gains = {name: _gain(weight) for name, weight in weights.items()}
    expected = {name: beta if scaled else 1.0 for name, (_, scaled) in GAINS.items()}
    if not all(_close(gains[name], expected[name]) for name in GAINS):
        mistake, sentence = _name_mistake(gains, beta)
        report.failures.append(Failure("gains", sentence, mistake or None))
    if not all(torch.equal(block.get_parameter(n), b) for n, b in biases.items()):
        report.failures.append(Failure("biases", "biases were changed", "biases changed"))
    return report
