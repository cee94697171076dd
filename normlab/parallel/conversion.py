"""Every batch norm of a model made to share its batch with other processes."""

from __future__ import annotations

import copy
import functools
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from normlab.layers import batch as batch_file
from normlab.layers.masked import MaskedBatchNorm1d
from normlab.parallel.batch import SyncBatchNorm, normalize_synchronized
from normlab.parallel.collectives import Group, KeepsGroup

_TORCH = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_OURS = (batch_file.BatchNorm1d, batch_file.BatchNorm2d)
_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm, batch_file._BatchNorm, MaskedBatchNorm1d)


def convert_sync_batchnorm(module: nn.Module, group: Group = None) -> nn.Module:
    """Replace the batch norms of a model by ones that share their batch, parameters and all.

    torch's classes and ours become :class:`SyncBatchNorm`. A subclass keeps its class and what
    its `forward` adds to that of the batch norm, which it has to call as `super().forward`.
    Hooks, buffers, modes and the identity of shared modules stay.

    Args:
        module: a model, or a batch norm; changed in place.
        group: of the batch norms that have none yet; None for all processes.

    Returns:
        `module`, or what replaces it.

    Raises:
        ValueError: a batch norm cannot be converted: it has no sizes yet, or a `forward` of its
            own that computes the norm by itself. The message names the module; the model is as
            it was.

    Conventions:
        unlike torch's, keeps the process group of a layer that has one, and never drops the
        `forward` of a subclass.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU())
        >>> convert_sync_batchnorm(model)[1]
        SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """
    found = {m: name for name, m in module.named_modules() if isinstance(m, _BATCH_NORMS)}
    found = {m: name for m, name in found.items() if not isinstance(m, _Synchronized)}
    made: dict[nn.Module, nn.Module] = {}
    for norm, name in found.items():
        made[norm] = _convert(norm, name, group)
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                parent._modules[name] = made[child]
    return made.get(module, module)


def _convert(module: nn.Module, name: str, group: Group) -> nn.Module:
    named = f"module: {name or 'the model itself'}, a {type(module).__name__},"
    if any(is_lazy(p) for p in (*module.parameters(), *module.buffers())):
        raise ValueError(
            f"{named} has no sizes yet; expected parameters. Call the model on one batch first"
        )
    try:
        new: Any = _new(type(module))
    except ValueError as error:
        raise ValueError(f"{named} {error}") from None
    # containers of its own, with the same parameters, buffers and hooks in them
    own = {k: copy.copy(v) if isinstance(v, dict | set) else v for k, v in vars(module).items()}
    vars(new).update(own)
    new.process_group = own.get("process_group") or group
    return new


def _new(kind: Any) -> Any:
    known = kind in (*_TORCH, *_OURS, nn.SyncBatchNorm, SyncBatchNorm)
    new_kind = SyncBatchNorm if known else _synchronized(kind)
    return new_kind.__new__(new_kind)


class _Synchronized(KeepsGroup):
    """What a converted subclass has beside its own methods."""

    original: type[nn.Module]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle it as its original class, which can be found by its name."""
        reduced: Any = super().__reduce_ex__(protocol)
        return _new, (self.original,), *reduced[2:]


@functools.cache
def _synchronized(kind: Any) -> Any:
    """A subclass of `kind` in which `super().forward` is a norm that shares its batch.

    Raises:
        ValueError: a `forward` between `kind` and the batch norm does not call it.
    """
    above = [c for c in kind.__mro__ if c in (*_TORCH, *_OURS)]
    if not above:
        raise ValueError(
            "is no subclass of BatchNorm1d, 2d or 3d; expected one. Replace it by hand with a "
            "layer that calls sync_batch_norm"
        )
    for c in kind.__mro__[: kind.__mro__.index(above[0])]:
        if "forward" in vars(c) and not _calls_super(vars(c)["forward"]):
            raise ValueError(
                "has a forward of its own that computes the norm by itself, so its statistics "
                "would stay those of one process; expected one that calls super().forward(input). "
                "Replace it by hand with SyncBatchNorm, followed by what its forward adds"
            )

    def forward(self: Any, input: Tensor) -> Tensor:
        (self._check_input_dim if above[0] in _TORCH else self.check_input_dim)(input)
        return normalize_synchronized(self, input)

    below = type(f"Sync{above[0].__name__}", (above[0],), {"forward": forward})
    own = {"original": kind, "__module__": kind.__module__}
    return type(f"Sync{kind.__name__}", (_Synchronized, kind, below), own)


def _calls_super(forward: Any) -> bool:
    code = getattr(forward, "__code__", None)
    if code is None or batch_file.batch_norm.__name__ in code.co_names:
        return False
    return "__class__" in code.co_freevars and "forward" in code.co_names
