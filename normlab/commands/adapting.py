"""What --call and --select say of a layer, made into one that the checks can call."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import nn

from normlab.checks.probing.arguments import Wrapped
from normlab.commands.loading import CommandError
from normlab.norms import NORMS

_SELECTION = re.compile(r"(\[(-?\d+|'[^']*'|\"[^\"]*\")\]|\.[A-Za-z_]\w*)+")


def _selection(select: str | None) -> CodeType:
    """Code that picks the part that counts of a result."""
    if select is not None and not _SELECTION.fullmatch(select):
        raise CommandError(
            f"--select: got {select!r}; expected what follows the result, such as '[0]'"
        )
    return compile(f"result{select or ''}", "select", "eval")


def _call(call: str, roles: tuple[str, ...]) -> tuple[CodeType, list[str]]:
    """The call as code, and the parameters of the norm in it."""
    try:
        tree = ast.parse(call, mode="eval")
    except SyntaxError as error:
        raise CommandError(f"--call: got {call!r}; expected a call, as 'f(x, weight)'") from error
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
    names = dict.fromkeys(n.id for n in found)
    own = {n.id for n in found if isinstance(n.ctx, ast.Store)}  # by :=
    unknown = [n for n in names if n not in (*roles, *own, "f", "x", "torch")]
    if unknown or not {"f", "x"} <= set(names):
        wrong = f"{unknown[0]!r} in it is unknown" if unknown else "f or x is missing"
        raise CommandError(
            f"--call: got {call!r}; {wrong}. Expected an expression with f, the layer, and x, the "
            + (
                f"input, and any of {', '.join(roles)}, as 'f(x, weight)'"
                if roles
                else "input, as 'f(x)'"
            )
        )
    return compile(tree, "call", "eval"), [n for n in names if n in roles]


def adapt(
    layer: Callable[..., Any], like: str, call: str | None, select: str | None
) -> Callable[..., Any]:
    """A layer that is called in the usual way and gives one tensor.

    Args:
        layer: a module or a function.
        like: family, whose parameters may stand in `call`.
        call: expression with `f`, the layer, `x`, the input, and parameters of a function.
        select: what follows the result, such as "[0]".

    Raises:
        CommandError: an expression cannot be read, or has names that are unknown.

    Example:
        >>> def backwards(weight, x):
        ...     return x * weight, x
        >>> f = adapt(backwards, "rms_norm", "f(weight, x)", "[0]")
        >>> f(torch.ones(2), weight=3)
        tensor([3., 3.])
    """
    if call is None and select is None:
        return layer
    chosen = _selection(select)

    def evaluate(code: CodeType, **names: Any) -> Any:
        return eval(chosen, {"result": eval(code, {"torch": torch, **names})})

    code, roles = _call(call or "f(x)", () if isinstance(layer, nn.Module) else NORMS[like].roles)
    if isinstance(layer, nn.Module):
        return Wrapped(layer, lambda f, x: evaluate(code, f=f, x=x))
    if call is None:

        def selected(*args: Any, **kwargs: Any) -> Any:
            return eval(chosen, {"result": layer(*args, **kwargs)})

        with contextlib.suppress(TypeError, ValueError):  # a C function without a signature
            selected.__signature__ = inspect.signature(layer)  # type: ignore[attr-defined]
        return selected
    by_name = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature(
        [inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        + [inspect.Parameter(role, by_name, default=_default(like, role)) for role in roles]
    )

    def called(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return evaluate(code, f=layer, **bound.arguments)

    called.__signature__ = signature  # type: ignore[attr-defined]
    return called


def _default(like: str, role: str) -> Any:
    """Weight and bias have to be given; all else has the default of the norm."""
    if role in ("weight", "bias"):
        return inspect.Parameter.empty
    return dict(zip(NORMS[like].roles, NORMS[like].arguments(), strict=True))[role]
