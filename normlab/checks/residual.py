"""Is this residual block what its name says, and which matrices does its initialization scale?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from normlab.checks.report import Failure, Finding, Ran, Report, collect
from normlab.checks.residual_mistakes import BLOCK_MISTAKES, GAINS, INIT_MISTAKES, Map, Placement
from normlab.layers import LayerNorm

__all__ = ["ResidualName", "check_deep_norm_init", "check_residual"]

ResidualName = Literal["post_norm", "pre_norm", "deep_norm"]
FORMULAS: dict[str, Placement] = {
    "post_norm": lambda x, f, norm, a: norm(x + f(x)),
    "pre_norm": lambda x, f, norm, a: x + f(norm(x)),
    "deep_norm": lambda x, f, norm, a: norm(a * x + f(x)),
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
    # without alpha, the right place is a mistake of its own, and comes first
    names = ["alpha missing"] if like == "deep_norm" else []
    names += [n for n in BLOCK_MISTAKES if like == "deep_norm" or "alpha" not in n]
    for name in names:
        mistake = BLOCK_MISTAKES[name]
        for factor in (alpha, 1.0):
            if _same(got, mistake.formula(x, branch, norm, factor)):
                says = mistake.message if factor != 1.0 else mistake.message.replace("alpha ", "")
                return Failure("formula", says, name)
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
    return collect(Report(like), _compare_block(build, like))


def _compare_block(build: Callable[..., Any], like: str) -> Iterator[Finding]:
    branch, norm, x, dy = _parts()
    x.requires_grad_()
    yield Ran("formula", 0)
    yield Ran("gradient", 0)
    for alpha in (0.81, 2.5) if like == "deep_norm" else (1.0,):
        block = build(branch, norm, alpha) if like == "deep_norm" else build(branch, norm)
        if isinstance(block, nn.Module):
            block.double().eval()
        try:
            got = block(x)
        except Exception as error:  # the block under test may fail in any way
            yield Failure("formula", f"it raised {type(error).__name__}: {error}")
            return
        yield Ran("formula")
        expected = FORMULAS[like](x, branch, norm, alpha)
        if got.shape != expected.shape:
            yield Failure("formula", f"returned shape {tuple(got.shape)} for {tuple(x.shape)}")
            return
        if not _same(got, expected):
            yield _diagnose(got, x, branch, norm, like, alpha)
            return
        ours, right = (_gradients(y, dy, x, branch) for y in (got, expected))
        if not all(_same(a, b) for a, b in zip(ours, right, strict=True)):
            yield Failure("gradient", BLOCK_MISTAKES["gradient cut"].message, "gradient cut")
            return


def _gain(weight: Tensor) -> float:
    """Gain of Xavier's rule that the entries show."""
    fan_out, fan_in = weight.shape
    return (weight.detach().double().square().mean() * (fan_in + fan_out) / 2).sqrt().item()


def _close(a: float, b: float) -> bool:
    return abs(a / b - 1) < 0.05  # nine standard errors of 16384 entries


def _explain_gains(
    gains: Mapping[str, float], fans: Mapping[str, tuple[int, int]], beta: float
) -> Failure:
    for name, mistake in INIT_MISTAKES.items():
        if all(_close(gains[m], mistake.gain(m, beta, *fans[m])) for m in GAINS):
            return Failure("gains", mistake.message, name)
    return Failure("gains", "gains are " + ", ".join(f"{m} {gains[m]:.2f}" for m in GAINS))


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
    return collect(Report("deep_norm_init"), _compare_gains(init, beta))


def _compare_gains(init: Callable[[nn.Module, float], Any], beta: float) -> Iterator[Finding]:
    sizes = dict.fromkeys(GAINS, (128, 128)) | {"linear1": (128, 256), "linear2": (256, 128)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        block = nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()})
        biases = {
            name: p.detach().clone() for name, p in block.named_parameters() if "bias" in name
        }
        init(block, beta)
    yield Ran("gains", len(GAINS))
    yield Ran("biases", 0)
    gains = {name: _gain(block.get_parameter(f"{name}.weight")) for name in GAINS}
    expected = {name: beta if scaled else 1.0 for name, (_, scaled) in GAINS.items()}
    if not all(_close(gains[name], expected[name]) for name in GAINS):
        yield _explain_gains(gains, sizes, beta)
    if not all(torch.equal(block.get_parameter(n), b) for n, b in biases.items()):
        yield Failure("biases", INIT_MISTAKES["biases changed"].message, "biases changed")
