"""Which modules may be norms, by name and by parameters, before anything is measured."""

from __future__ import annotations

import re

import torch
from torch import nn

from normlab.norms import NORMS

_TORCH_NORMS = (
    "torch.nn.modules.normalization",
    "torch.nn.modules.batchnorm",
    "torch.nn.modules.instancenorm",
)
_KNOWN = {name for record in NORMS.values() for name in record.modules}
# layers with matrices or filters, which no norm has
_OTHERS = (nn.Linear, nn.Embedding, nn.modules.conv._ConvNd, nn.RNNBase, nn.MultiheadAttention)
# "norm" in any spelling, but for "normal", unless that goes on to "normalize"; and what takes the
# place of a norm
_CLASS = re.compile(r"[Nn]orm(?!al(?!i[sz]))|NORM|BN(?![a-z])|[GF]RN(?![a-z])|DyT|Derf|DynamicTanh")
_ATTRIBUTE = re.compile(r"norm(?!al(?!i[sz]))|(^|_)(bn|ln|gn|rms|grn|frn)\d*($|_)", re.IGNORECASE)


def is_torch_norm(module: nn.Module) -> bool:
    """Whether it is one of torch's own."""
    return type(module).__module__ in _TORCH_NORMS


def is_scripted(module: nn.Module) -> bool:
    """Whether torch.jit holds its code, which takes no hooks and shows no calls."""
    return isinstance(module, torch.jit.ScriptModule)


def _is_other_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn.") and not is_torch_norm(module)


def is_named_norm(name: str, module: nn.Module) -> bool:
    """Whether class or attribute are named like a norm."""
    if _is_other_torch(module):
        return False
    class_name = type(module).__name__
    return bool(
        class_name in _KNOWN
        or _CLASS.search(class_name)
        or _ATTRIBUTE.search(name.rpartition(".")[2])
    )


def has_matrices(module: nn.Module) -> bool:
    """Whether it holds layers that no norm has."""
    return any(isinstance(part, _OTHERS) for part in module.modules())


def may_be_norm(name: str, module: nn.Module) -> bool:
    """Whether it is worth asking which norm it is."""
    if _is_other_torch(module):
        return False
    return is_named_norm(name, module) or not has_matrices(module)
