"""A module as a subject of the checks: where its parameters and buffers are, and its shape."""

from __future__ import annotations

import copy
import dataclasses
import io
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from normlab.norms import NORMS, Case
from normlab.probing.functions import BIAS_NAMES, EPS_NAMES, WEIGHT_NAMES, FunctionSubject
from normlab.probing.shapes import attribute, find_cases

__all__ = ["AnySubject", "FunctionSubject", "ModuleSubject", "make_subject"]


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters, buffers and tensors that are plain attributes, by dotted name."""
    found: dict[str, Tensor] = dict(module.named_parameters())
    found |= dict(module.named_buffers())
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                found[f"{prefix}.{name}" if prefix else name] = value
    return found


def _copy(module: nn.Module) -> nn.Module:
    """A deep copy, also of a module whose buffers hang on an autograd graph."""
    if isinstance(module, torch.jit.ScriptModule):
        # a deep copy of one runs on the parameters of the original
        file = io.BytesIO()
        torch.jit.save(module, file)
        file.seek(0)
        return torch.jit.load(file)
    attached = {id(t): t.detach().clone() for t in tensors_of(module).values() if t.grad_fn}
    return copy.deepcopy(module, attached)


class ModuleSubject:
    """A module, copied before every use; its parameters are found by name or by their effect."""

    def __init__(
        self, module: nn.Module, like: str, shape: Sequence[int] | None, num_groups: int | None
    ):
        self.attached = [n for n, t in tensors_of(module).items() if t.grad_fn is not None]
        self.module = _copy(module).cpu()
        for p in self.module.parameters():  # a frozen parameter is no wrong norm
            p.requires_grad_()
        # a copy of a compiled module compiles anew, so one copy for each dtype is kept
        self._kept: dict[torch.dtype, nn.Module] | None = (
            {} if hasattr(module, "_orig_mod") else None
        )
        self.like = like
        parameters = dict(self.module.named_parameters())
        tensors = tensors_of(self.module)
        plain = {n: t for n, t in tensors.items() if n not in parameters and t.numel() > 1}
        self.weight_name = _by_name(parameters, WEIGHT_NAMES) or _by_name(plain, WEIGHT_NAMES)
        self.bias_name = _by_name(parameters, BIAS_NAMES) or _by_name(plain, BIAS_NAMES)
        self.declared_eps = attribute(self.module, EPS_NAMES)
        main = tensors[self.weight_name] if self.weight_name else None
        if main is None:
            main = next((p for p in parameters.values() if p.numel() > 1), None)
        self.cases = find_cases(self.module, like, shape, main, num_groups)
        self._assign_by_effect(
            [n for n in parameters if n not in (self.weight_name, self.bias_name)]
        )
        weight, bias = self.weight_name is not None, self.bias_name is not None
        self.cases = [dataclasses.replace(c, weight=weight, bias=bias) for c in self.cases]
        self.mean_name, self.var_name = self._find_running(plain)
        self.has_running = self.mean_name is not None and self.var_name is not None
        self.has_training = True
        self.fixed = {
            key
            for key, name in (("dweight", self.weight_name), ("dbias", self.bias_name))
            if name is not None and name not in parameters
        }

    def _assign_by_effect(self, unknown: list[str]) -> None:
        """Tell weight from bias: a bias changes the output by the same amount for every input."""
        if self.weight_name is not None and self.bias_name is not None:
            return
        g = torch.Generator().manual_seed(0)
        inputs = [torch.randn(self.cases[0].shape, generator=g) for _ in range(2)]
        for name in unknown:
            before, after = self.with_dtype(torch.float32), self.with_dtype(torch.float32)
            with torch.no_grad():
                dict(after.named_parameters())[name].add_(1.0)
                moves = [after.train()(x.clone()) - before.train()(x.clone()) for x in inputs]
            if all(float(m.abs().max()) < 1e-6 for m in moves):
                continue
            additive = torch.allclose(moves[0], moves[1], atol=1e-5)
            if additive and self.bias_name is None:
                self.bias_name = name
            elif not additive and self.weight_name is None:
                self.weight_name = name

    def _find_running(self, plain: Mapping[str, Tensor]) -> tuple[str | None, str | None]:
        """Running mean and variance: by name, else by how one batch moves them."""
        if not NORMS[self.like].has_running:
            return None, None
        case = self.cases[0]
        parameters = (self.weight_name, self.bias_name)
        size = case.parameter_shape[0]
        sized = [n for n, t in plain.items() if t.numel() == size and n not in parameters]
        mean = next((n for n in sized if "mean" in n.rsplit(".", 1)[-1]), None)
        var = next((n for n in sized if "var" in n.rsplit(".", 1)[-1] and n != mean), None)
        if mean is not None and var is not None:
            return mean, var
        module = self.with_dtype(torch.float32).train()
        for name in sized:
            tensors_of(module)[name].detach().fill_(1.0)
        g = torch.Generator().manual_seed(0)
        try:
            with torch.no_grad():
                module(5.0 + 0.1 * torch.randn(case.shape, generator=g))
        except Exception:  # reported by the checks, which call the layer, too
            return None, None
        after = tensors_of(module)
        moved = {n: float(after[n].detach().mean()) - 1.0 for n in sized if n in after}
        up = [n for n, by in moved.items() if by > 1e-3]
        down = [n for n, by in moved.items() if by < -1e-3]
        return (up[0], down[0]) if len(up) == len(down) == 1 else (mean, var)

    def with_dtype(self, dtype: torch.dtype) -> nn.Module:
        """A fresh copy whose floating parameters and buffers have this dtype."""
        if self._kept is None:
            return _copy(self.module).to(dtype)
        if dtype not in self._kept:
            self._kept[dtype] = _copy(self.module).to(dtype)
        kept, source = self._kept[dtype], tensors_of(self.module)
        with torch.no_grad():
            for name, value in (*kept.named_parameters(), *kept.named_buffers()):
                value.copy_(source[name])
                value.grad = None
        return kept

    @staticmethod
    def tensor(module: nn.Module, name: str) -> Tensor:
        """A parameter, buffer or plain attribute of a copy."""
        return tensors_of(module)[name]

    def _fill(self, module: nn.Module, name: str | None, value: Tensor | None) -> None:
        if name is None or value is None:
            return
        target = tensors_of(module)[name]
        with torch.no_grad():
            target.copy_(value.reshape(target.shape))

    def prepare(
        self,
        dtype: torch.dtype,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        running: tuple[Tensor, Tensor] | None = None,
    ) -> nn.Module:
        """A copy with these parameters and buffers."""
        module = self.with_dtype(dtype)
        self._fill(module, self.weight_name, weight)
        self._fill(module, self.bias_name, bias)
        if running is not None:
            self._fill(module, self.mean_name, running[0])
            self._fill(module, self.var_name, running[1])
        return module

    def running_of(self, module: nn.Module) -> tuple[Tensor, Tensor] | None:
        """The running statistics of a copy, flattened."""
        if self.mean_name is None or self.var_name is None:
            return None
        tensors = tensors_of(module)
        return tensors[self.mean_name].flatten(), tensors[self.var_name].flatten()

    def __call__(
        self,
        case: Case,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        *,
        training: bool = True,
        running: tuple[Tensor, Tensor] | None = None,
        momentum: float = 0.1,
        half_parameters: bool = True,
    ) -> tuple[Tensor, list[Tensor | None]]:
        dtype = x.dtype if half_parameters else torch.float32
        module = self.prepare(dtype, weight, bias, running).train(training)
        y = module(x)
        named: Mapping[str, Tensor] = dict(module.named_parameters())
        leaves = [named.get(self.weight_name or ""), named.get(self.bias_name or "")]
        if running is not None:
            after = self.running_of(module)
            if after is not None:
                running[0].copy_(after[0].detach())
                running[1].copy_(after[1].detach())
        return y, leaves


AnySubject = FunctionSubject | ModuleSubject


def _by_name(names: Iterable[str], wanted: tuple[str, ...]) -> str | None:
    names = list(names)
    for want in wanted:
        for name in names:
            if name.rsplit(".", 1)[-1] == want:
                return name
    return None


def make_subject(
    layer: Callable[..., Tensor],
    like: str,
    shape: Sequence[int] | None,
    num_groups: int | None,
    eps: float | None,
) -> AnySubject:
    """Wrap a module or a function.

    Raises:
        TypeError: `layer` is a class, or cannot be called.
        ValueError: the shape of a module's input cannot be inferred, or its parameters have no
            shape yet.
    """
    if isinstance(layer, type) or not callable(layer):
        raise TypeError(
            f"layer: got {layer!r}; expected a module or a function. Construct a class first"
        )
    if isinstance(layer, nn.Module):
        if any(is_lazy(t) for t in (*layer.parameters(), *layer.buffers())):
            raise ValueError("layer: its parameters have no shape yet; call it on an input first")
        return ModuleSubject(layer, like, shape, num_groups)
    cases, norm = None, NORMS[like]
    if shape is not None:
        shape = tuple(shape)
        parameter_shape = norm.parameter_shape(shape)
        cases = [Case(shape, parameter_shape, num_groups=num_groups or 1, bias=norm.has_bias)]
    elif num_groups is not None and norm.grouped:
        size = 3 * num_groups
        cases = [
            Case((3, size), (size,), num_groups=num_groups),
            Case((2, size, 6, 5), (size,), num_groups=num_groups),
        ]
    return FunctionSubject(layer, like, cases, eps)
