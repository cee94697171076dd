"""Wrong norms that a test suite must reject, each made from one mistake of `mistakes`.

:func:`make_wrong` gives a function with the signature of the family's function in
:mod:`torch.nn.functional`. Without a mistake the function is right, which the tests make sure
of: what kills a mutant is its mistake.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.changes import Call, update_running
from normlab.checks.formula import FAMILIES, Formula, default_eps
from normlab.checks.mistakes import MISTAKES, Gradient, Mistake
from normlab.checks.residual_mistakes import RESIDUAL_MISTAKES
from normlab.norms import NORMS, find_norm

__all__ = [
    "BATCH_NORM_MUTANTS",
    "LAYER_NORM_MUTANTS",
    "Mutant",
    "find_mutant",
    "mutants",
]

CONSTRUCTED = "constructed"
WrongNorm = Callable[..., Tensor]
_RIGHT = Mistake("")


@dataclass(frozen=True)
class Mutant:
    """Right but for one mistake.

    Attributes:
        norm: what it claims to be: a key of :data:`normlab.norms.NORMS`, or "pre_norm",
            "deep_norm", "deep_norm_init".
        name: of the mistake.
        make: gives the wrong function or module.
        mistake: `Failure.mistake` that a report must name; empty where the check says it all.
        source: where it was met: a paper's code, an issue, a pull request; "constructed" where
            nobody is known to have made this mistake in this norm.
    """

    norm: str
    name: str
    make: Callable[[], Callable[..., Any]]
    mistake: str
    source: str = CONSTRUCTED


class _WrongGradient(torch.autograd.Function):
    """The output of a formula, its gradients by weight and bias, and another by the input."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        formula: Formula,
        gradient: Gradient,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.formula, ctx.gradient = formula, gradient
        return formula(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, *parameters = ctx.saved_tensors
        leaves = [None if p is None else p.detach().requires_grad_() for p in parameters]
        asked = [leaf for leaf in leaves if leaf is not None]
        with torch.enable_grad():
            y = ctx.formula(x, *leaves)
            found = iter(torch.autograd.grad(y, asked, grads[0]) if asked else ())
        by_parameters = [None if leaf is None else next(found) for leaf in leaves]
        dx = ctx.gradient(ctx.formula, x, *parameters, grads[0])
        return dx, *by_parameters, None, None


def _signature(like: str, mistake: Mistake) -> inspect.Signature:
    """The record's, with a default for all that need not be given."""
    either, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    norm = NORMS[like]
    eps = norm.eps if mistake.default_eps == 1.0 else default_eps(like) * mistake.default_eps
    defaults: dict[str, Any] = dict.fromkeys(("input", "normalized_shape", "num_groups"), empty)
    defaults |= {"training": not norm.over_batch, "momentum": 0.1, "eps": eps}
    roles = "input", *norm.roles
    return inspect.Signature(
        [inspect.Parameter(role, either, default=defaults.get(role)) for role in roles]
    )


def make_wrong(like: str, mistake: Mistake = _RIGHT) -> WrongNorm:
    """A function with one mistake and the record's signature; right without one."""
    signature = _signature(like, mistake)

    def wrong(*args: Any, **kwargs: Any) -> Tensor:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return _compute(like, mistake, bound.arguments)

    wrong.__signature__ = signature  # type: ignore[attr-defined]
    return wrong


def _compute(like: str, mistake: Mistake, given: dict[str, Any]) -> Tensor:
    norm, x = NORMS[like], given["input"]
    dtype, eps, running = x.dtype, given.get("eps"), None
    if given.get("running_mean") is not None:
        running = given["running_mean"], given["running_var"]
    training = given.get("training", True)
    call = Call(
        norm=norm,
        x=x,
        weight=given.get("weight"),
        bias=given.get("bias"),
        eps=default_eps(like) if eps is None else eps,
        normalized_ndim=len(given.get("normalized_shape", (1,))),
        uses_batch_statistics=training or running is None,
        updates=training,
    )
    call = dataclasses.replace(call, **mistake.call)
    if mistake.before is not None:
        mistake.before(call)
    x, weight, bias = call.x, call.weight, call.bias
    if call.upcasts_half and dtype in (torch.float16, torch.bfloat16):
        x, weight, bias = (None if t is None else t.float() for t in (x, weight, bias))
    right = Formula.of(
        like,
        eps=call.eps,
        normalized_ndim=call.normalized_ndim,
        num_groups=given.get("num_groups", 1),
    )
    formula = right.replace(**mistake.changes, dims=call.dims)
    if running is not None and call.updates:
        mean, var, count = formula.replace(divisor="n").statistics(x)
        if mistake.name == "missing_centering":  # then there is no mean to record
            mean = torch.zeros_like(mean)
        update_running({mistake.name}, running, mean, var, count, given["momentum"])
    if running is not None and not call.uses_batch_statistics:  # all but what normalizes is right
        return right.evaluate(x, *running, weight, bias).to(dtype)
    if mistake.gradient is not None:
        y = _WrongGradient.apply(x, weight, bias, formula, mistake.gradient)
    else:
        y = formula(x, weight, bias)
    y = y.to(dtype)
    return y if mistake.after is None else mistake.after(call, y)


class WrongModule(nn.Module):
    """A norm over `size` features, or of `size` channels, with one mistake; right without one."""

    def __init__(self, like: str, size: int, mistake: Mistake = _RIGHT):
        super().__init__()
        norm = NORMS[like]
        self.like = like
        self.function = make_wrong(like, mistake)
        self.num_groups = 2
        self.normalized_shape = (size,)
        self.num_channels = size
        shape = norm.parameter_shape((2, size))
        if norm.has_weight:
            self.weight = nn.Parameter(torch.full(shape, 1.0 - norm.weight_offset))
        if norm.has_bias:
            self.bias = nn.Parameter(torch.zeros(shape))
        if norm.has_running:
            self.register_buffer("running_mean", torch.zeros(size))
            self.register_buffer("running_var", torch.ones(size))
        if mistake.module is not None:
            mistake.module(self)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize and record."""
        roles = (role for role in NORMS[self.like].roles if hasattr(self, role))
        y: Tensor = self.function(x, **{role: getattr(self, role) for role in roles})
        return y


def _make(like: str, mistake: Mistake) -> Callable[..., Any]:
    if mistake.module is not None:
        return WrongModule(like, 6, mistake)
    return make_wrong(like, mistake)


def mutants(norm: str | None = None) -> Iterator[Mutant]:
    """The wrong norms of one kind, or those of the norms that the main chapters compare.

    Args:
        norm: a key of :data:`normlab.norms.NORMS`; "pre_norm", "deep_norm" and "deep_norm_init"
            are wrong residual blocks and initializations, for which `make` gives what
            :func:`normlab.checks.check_residual` and its like take. None for all norms of the main
            chapters.

    Raises:
        ValueError: `norm` is unknown.

    Example:
        >>> next(mutants("rms_norm")).source
        "the RMSNorm paper's authors' torch code; OLMo issue 281"
    """
    if norm in RESIDUAL_MISTAKES:
        for name, wrong in RESIDUAL_MISTAKES[norm].items():
            yield Mutant(norm, name, wrong.make, name, wrong.seen_in or CONSTRUCTED)
        return
    compared = (name for name in FAMILIES if NORMS[name].torch)
    for like in compared if norm is None else (norm,):
        record = find_norm(like)
        for name, mistake in MISTAKES.items():
            applies = mistake.wrong_norm is not None and mistake.wrong_norm(record)
            if applies and "mutants" not in record.absent:
                make = functools.partial(_make, like, mistake)
                reported = name if mistake.reported is None else mistake.reported(record)
                source = mistake.seen_in.get(like, CONSTRUCTED)
                yield Mutant(like, name, make, reported, source)


def find_mutant(norm: str, name: str) -> Mutant:
    """One mutant.

    Raises:
        ValueError: there is none of this name.
    """
    found = {mutant.name: mutant for mutant in mutants(norm)}
    if name not in found:
        raise ValueError(f"name: got {name!r}; expected one of {', '.join(sorted(found))}")
    return found[name]


def _select(norm: str, names: dict[str, str]) -> dict[str, WrongNorm]:
    return {shown: find_mutant(norm, name).make() for shown, name in names.items()}


#: name of the chapters -> name of the mistake; the eleven and the eight
LAYER_NORM_NAMES = {
    "eps_outside": "eps_outside",
    "bessel_corrected": "bessel",
    "bessel_corrected_eps_outside": "bessel_eps_outside",
    "other_eps": "other_eps",
    "one_pass": "one_pass",
    "detached_statistics": "detached_statistics",
    "uncentered_numerator": "uncentered_numerator",
    "wrong_axis": "wrong_axis",
    "backward_without_mean_term": "missing_mean_term",
    "backward_without_projection_term": "missing_projection_term",
    "weight_after_projection": "weight_after_projection",
}
_BATCH_NORM_NAMES = {
    "eps_outside": "eps_outside",
    "bessel_in_forward": "bessel",
    "running_var_biased": "running_var_biased",
    "momentum_reversed": "momentum_reversed",
    "eval_uses_batch": "eval_uses_batch",
    "detached_statistics": "detached_statistics",
    "one_pass": "one_pass",
    "uncentered_numerator": "uncentered_numerator",
}
LAYER_NORM_MUTANTS: dict[str, WrongNorm] = _select("layer_norm", LAYER_NORM_NAMES)
BATCH_NORM_MUTANTS: dict[str, WrongNorm] = _select("batch_norm", _BATCH_NORM_NAMES)
