"""A module, called as a norm of a family: where its parameters and buffers are, and its inputs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from normlab import norms
from normlab.checks.probing.functions import ForeignFunction
from normlab.checks.probing.inputs import Declared, find_cases
from normlab.checks.probing.layer import ForeignLayer
from normlab.checks.probing.names import find_attribute, find_name, find_running_names
from normlab.checks.probing.parameters import find_kinds, find_packed
from normlab.checks.probing.running import find_running
from normlab.checks.probing.state import check_is_ready, copy_module, tensors_of, unparametrize
from normlab.norms import NORMS


class ForeignModule:
    """A module, copied before every use; its parameters are found by name, or by their effect.

    Args:
        module: it is copied.
        like: family.
        cases: inputs that it is called with. They are enough where all tensors have usual names;
            else :meth:`explore` finds inputs and tensors by calling it.
    """

    has_training = True

    def __init__(self, module: nn.Module, like: str, cases: Sequence[norms.Case] = ()):
        self.attached = [n for n, t in tensors_of(module).items() if t.grad_fn is not None]
        self.compiled = hasattr(module, "_orig_mod")
        self.module = unparametrize(copy_module(module).cpu(), NORMS[like].has_running)
        for p in self.module.parameters():  # a frozen parameter is no wrong norm
            p.requires_grad_()
        # a copy of a compiled module compiles anew, so one copy for each dtype is kept
        self._kept: dict[torch.dtype, nn.Module] | None = (
            {} if any(hasattr(m, "_orig_mod") for m in module.modules()) else None
        )
        self.like, self.cases = like, list(cases)
        parameters = dict(self.module.named_parameters())
        tensors = tensors_of(self.module)
        self._plain = {n: t for n, t in tensors.items() if n not in parameters and t.numel() > 1}
        self.weight_name, self.bias_name = (
            find_name(parameters, role) or find_name(self._plain, role)
            for role in ("weight", "bias")
        )
        self.mean_name, self.var_name = self._named_running() if cases else (None, None)
        self.declared_eps = find_attribute(self.module, "eps")

    def explore(
        self,
        shape: Sequence[int] | None,
        num_groups: int | None,
        declared: Declared | None = None,
    ) -> ForeignModule:
        """Find inputs that it takes, and parameters and running statistics, by calling it.

        Raises:
            ValueError: the shape of an input cannot be inferred.
        """
        parameters = dict(self.module.named_parameters())
        main = tensors_of(self.module)[self.weight_name] if self.weight_name else None
        if main is None:
            main = next((p for p in parameters.values() if p.numel() > 1), None)
        copied = self.with_dtype(torch.float32)
        layer = ForeignLayer(copied, [copied], ())
        with torch.no_grad():
            packed = find_packed(layer, self.like, shape)
            if packed:
                raise ValueError(f"layer: could not be tested: {packed}")
            if shape is not None and main is not None and self._is_idle(layer, tuple(shape)):
                main = self.weight_name = None
            self.cases = find_cases(layer, self.like, shape, main, num_groups, declared)
            layer.shape = self.cases[0].shape
            with contextlib.suppress(Exception):  # reported by the checks, which call it, too
                self._find_parameters(layer)
            self.mean_name, self.var_name = self._find_running(layer)
        weight, bias = self.weight_name is not None, self.bias_name is not None
        self.cases = [dataclasses.replace(c, weight=weight, bias=bias) for c in self.cases]
        return self

    def _is_idle(self, layer: ForeignLayer, shape: tuple[int, ...]) -> bool:
        """Whether its weight is a buffer that does nothing, as some libraries keep for its name."""
        if self.weight_name not in self._plain:
            return False
        layer.shape = shape
        with contextlib.suppress(Exception):  # reported by the checks, which call it, too
            return self.weight_name not in find_kinds(layer)
        return False

    @property
    def has_running(self) -> bool:
        """Whether it keeps a running mean and variance."""
        return self.mean_name is not None and self.var_name is not None

    @property
    def fixed(self) -> set[str]:
        """Gradients that it cannot have, of a weight or bias that is a buffer."""
        parameters = dict(self.module.named_parameters())
        named = {"dweight": self.weight_name, "dbias": self.bias_name}
        return {key for key, name in named.items() if name and name not in parameters}

    @property
    def declared_momentum(self) -> float | None:
        """Weight of the new batch; None for the average of all."""
        for part in (part for part in self.module.modules() if hasattr(part, "momentum")):
            if part.momentum is None:  # torch's instance norms take it as 0, not as an average
                return None if NORMS[self.like].over_batch else 0.0
            return float(part.momentum)  # type: ignore[arg-type]
        return 0.1

    def _find_parameters(self, layer: ForeignLayer) -> None:
        """Tell weight and bias by their effect, where a name is unusual."""
        if self.weight_name is not None and self.bias_name is not None:
            return
        known = self.weight_name, self.bias_name
        for name, kind in find_kinds(layer).items():
            if kind == "weight" and self.weight_name is None and name not in known:
                self.weight_name = name
            elif kind == "bias" and self.bias_name is None and name not in known:
                self.bias_name = name

    def _named_running(self) -> tuple[str | None, str | None]:
        """Running mean and variance, by name."""
        if not NORMS[self.like].has_running:
            return None, None
        size, parameters = self.cases[0].parameter_shape[0], (self.weight_name, self.bias_name)
        sized = [n for n, t in self._plain.items() if t.numel() == size and n not in parameters]
        return find_running_names(sized)

    def _find_running(self, layer: ForeignLayer) -> tuple[str | None, str | None]:
        """Running mean and variance: by name, else by their effect."""
        mean, var = self._named_running()
        if NORMS[self.like].has_running and (mean is None or var is None):
            with contextlib.suppress(Exception):  # reported by the checks, which call it, too
                found = find_running(layer)
                return (found.mean, found.var) if found else (mean, var)
        return mean, var

    def admits_none(self, role: str) -> bool:
        """A module has the parameters that it has."""
        return False

    def with_dtype(self, dtype: torch.dtype) -> nn.Module:
        """A fresh copy whose floating parameters and buffers have this dtype."""
        if self._kept is None:
            return copy_module(self.module).to(dtype)
        if dtype not in self._kept:
            self._kept[dtype] = copy_module(self.module).to(dtype)
        kept, source = self._kept[dtype], tensors_of(self.module)
        with torch.no_grad():
            for name, value in (*kept.named_parameters(), *kept.named_buffers()):
                value.copy_(source[name])
                value.grad = None
        kept.requires_grad_()
        return kept

    @staticmethod
    def tensor(module: nn.Module, name: str) -> Tensor:
        """A parameter, buffer or plain attribute of a copy."""
        return tensors_of(module)[name]

    def prepare(
        self,
        dtype: torch.dtype,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        running: tuple[Tensor, Tensor] | None = None,
    ) -> nn.Module:
        """A copy with these parameters and buffers."""
        module = self.with_dtype(dtype)
        tensors, (mean, var) = tensors_of(module), running or (None, None)
        given = {
            self.weight_name: weight,
            self.bias_name: bias,
            self.mean_name: mean,
            self.var_name: var,
        }
        with torch.no_grad():
            for name, value in given.items():
                if name is not None and value is not None:
                    tensors[name].copy_(value.reshape(tensors[name].shape))
        return module

    def leaves_of(self, module: nn.Module) -> list[Tensor | None]:
        """Weight and bias of a copy, None where they are no parameters."""
        named = dict(module.named_parameters())
        return [named.get(name or "") for name in (self.weight_name, self.bias_name)]

    def running_of(self, module: nn.Module) -> tuple[Tensor, Tensor] | None:
        """The running statistics of a copy, flattened."""
        if self.mean_name is None or self.var_name is None:
            return None
        tensors = tensors_of(module)
        return tensors[self.mean_name].flatten(), tensors[self.var_name].flatten()

    def resized(self, case: norms.Case, axis: int, size: int) -> norms.Case:
        """The case with another size along an axis, for the parameters that it has."""
        return dataclasses.replace(case, shape=(*case.shape[:axis], size, *case.shape[axis + 1 :]))

    def twin(self, module: nn.Module) -> nn.Module:
        """A copy that was never called, with the tensors of one that was."""
        twin, tensors = self.with_dtype(torch.float32), tensors_of(module)
        for name, tensor in tensors_of(twin).items():
            if name in tensors:
                tensor.copy_(tensors[name])
        return twin

    def fix_running(self) -> tuple[Tensor, Tensor]:
        """Fill running mean and variance with numbers that 16 bits have, and give these.

        Raises:
            ValueError: it holds none.
        """
        if self.mean_name is None or self.var_name is None:
            raise ValueError("layer: no running mean and variance were found among its buffers")
        channels = torch.arange(self.cases[0].parameter_shape[0]).double()
        fixed = (channels % 5 - 2) / 4, 2 ** (channels % 3 - 6)
        for name, values in zip((self.mean_name, self.var_name), fixed, strict=True):
            tensor = self.tensor(self.module, name)
            tensor.copy_(values.reshape(tensor.shape))
        return fixed

    def __call__(
        self,
        case: norms.Case,
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
        after = self.running_of(module)
        if running is not None and after is not None:
            running[0].copy_(after[0].detach())
            running[1].copy_(after[1].detach())
        return y, self.leaves_of(module)


ForeignNorm = ForeignFunction | ForeignModule


def as_norm(
    layer: Callable[..., Tensor],
    like: str,
    shape: Sequence[int] | None,
    num_groups: int | None,
    eps: float | None,
    declared: Declared | None = None,
) -> ForeignNorm:
    """A module or a function, to be called as a norm of a family.

    Raises:
        TypeError: `layer` is a class, or cannot be called.
        ValueError: the shape of a module's input cannot be inferred, its parameters have no
            shape yet, or `shape` has too few axes.
    """
    if isinstance(layer, type) or not callable(layer):
        raise TypeError(
            f"layer: got {layer!r}; expected a module or a function. Construct a class first"
        )
    if isinstance(layer, nn.Module):
        check_is_ready("layer", layer)
        return ForeignModule(layer, like).explore(shape, num_groups, declared)
    cases, norm = None, NORMS[like]
    if shape is not None:
        shape = tuple(shape)
        if norm.kind == "channel" and len(shape) < 2:
            raise ValueError(f"shape: got {shape}; {like} reads the layout (N, C, *)")
        parameter_shape = norm.parameter_shape(shape)
        cases = [norms.Case(shape, parameter_shape, num_groups=num_groups or 1, bias=norm.has_bias)]
        if declared is not None:
            case = declared.case(shape, None)
            cases = [dataclasses.replace(case, bias=case.bias and norm.has_bias)]
    elif num_groups is not None and norm.grouped:
        size = 3 * num_groups
        cases = [
            norms.Case((3, size), (size,), num_groups=num_groups),
            norms.Case((2, size, 6, 5), (size,), num_groups=num_groups),
        ]
    return ForeignFunction(layer, like, cases, eps)
