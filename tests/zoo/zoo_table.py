"""A row of the zoo, and the norms of its libraries as their source has them."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

# Class of a norm -> the families that it may be read as: those of which one position or one
# channel a group makes another keep both names. None: it has no record, or is no norm in spite of
# its name, and is listed; where a record is added, its name comes here.
CLASSES: dict[str, set[str | None]] = {
    "BatchNorm1d": {"batch_norm"},
    "BatchNorm2d": {"batch_norm"},
    "BatchNorm3d": {"batch_norm"},
    "BatchNormAct2d": {"batch_norm"},
    "CohereLayerNorm": {"layer_norm"},
    "ConvNextLayerNorm": {"layer_norm"},
    "ConvNextV2GRN": {"global_response_norm", None},
    "ConvNextV2LayerNorm": {"layer_norm"},
    "DeepseekV3RMSNorm": {"rms_norm"},
    "DeformableDetrFrozenBatchNorm2d": {None},
    "DetrFrozenBatchNorm2d": {None},
    "DynamicTanh": {"dyt", None},
    "EvoNorm2dS0": {"evo_norm", None},
    "FP32LayerNorm": {"layer_norm"},
    "FalconMambaRMSNorm": {"rms_norm"},
    "FalconMambaWeightlessRMSNorm": {"rms_norm"},
    "FilterResponseNormTlu2d": {"filter_response_norm"},
    "Gemma3RMSNorm": {"rms_norm", "zero_centered_rms_norm"},
    "GlobalResponseNorm": {"global_response_norm", None},
    "GroupNorm": {"group_norm", "instance_norm"},
    "GroupNorm1": {"group_norm"},
    "GroupNormAct": {"group_norm"},
    "InstanceNorm2d": {"instance_norm"},
    "InstanceNorm3d": {"instance_norm"},
    "LayerNorm": {"layer_norm"},
    "LayerNorm2d": {"layer_norm"},
    "LlamaRMSNorm": {"rms_norm"},
    "Mamba2RMSNorm": {"rms_norm"},
    "MambaRMSNorm": {"rms_norm"},
    "MambaRMSNormGated": {"rms_norm"},
    "NemotronLayerNorm1P": {"layer_norm"},
    "NoNorm": {None},
    "OlmoLayerNorm": {"layer_norm"},
    "Olmo2RMSNorm": {"rms_norm"},
    "PatchTSTStdScaler": {"layer_norm"},  # over time, without a weight: instance norm, too
    "PixelNorm": {"rms_norm"},
    "Qwen3NextRMSNorm": {"rms_norm", "zero_centered_rms_norm"},
    "Qwen3NextRMSNormGated": {"rms_norm"},
    "Qwen3RMSNorm": {"rms_norm"},
    "RMSNorm": {"rms_norm", None},  # None: that of one library scales by the size of an axis
    "RTDetrFrozenBatchNorm2d": {None},
    "ScaleNorm": {"scale_norm", "rms_norm"},
    "SimpleRMSNorm": {"rms_norm"},
    "T5LayerNorm": {"rms_norm"},
    "TimesFmRMSNorm": {"rms_norm"},
    "WanRMS_norm": {"rms_norm"},
    "Affine": {None},
    # calls of a function in a module that is no norm
    "layer_norm()": {"layer_norm"},
    "normalize()": {"scale_norm"},
    "sum()": {None},  # by a statistic, written out
}


@dataclass(frozen=True)
class Model:
    """One model.

    Attributes:
        name: library and constructor.
        build: makes it, with random weights, in training mode.
        example: makes its arguments.
        norms: class of a norm, or function -> from how many places one pass calls it.
        why: how these numbers follow from the source.
        idle: class of a norm -> how many the model holds and this pass does not call.
        findings: rule -> how many modules it names.
        seen_in: rule -> file of the library where the reason stands, and text of that line.
    """

    name: str
    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    norms: Mapping[str, int]
    why: str
    idle: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[str, int] = field(default_factory=dict)
    seen_in: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def library(self) -> str:
        """Package that it comes from."""
        return self.name.split()[0]


def images(size: int, channels: int = 3, count: int = 2) -> Callable[[], Tensor]:
    """Makes normal images."""
    return lambda: torch.randn(count, channels, size, size)


def tokens(size: int = 100, length: int = 12) -> Tensor:
    """Two sequences of tokens, none of which is a usual number for padding."""
    return torch.randint(3, size, (2, length))


def attribute(module: str, name: str) -> Any:
    """From a module that is imported when a model is built."""
    if "torchvision" not in sys.modules:
        _import_torchvision()  # the other libraries import it
    return getattr(importlib.import_module(module), name)


def _import_torchvision() -> None:
    """Import torchvision; its models need no compiled operators, which belong to one torch build.

    Where they cannot be loaded, two of them are declared, without a body, since the import asks
    for them.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(declared)
        importlib.import_module("torchvision")


_KEPT: list[Any] = []  # a library that is collected takes its declarations along


def count_called(model: nn.Module, example: Any) -> tuple[Counter[str], Counter[str]]:
    """How many norms one pass calls, and how many it does not, by the names of their classes.

    This looks at nothing but the classes of the table. A norm inside of another counts with it.
    """
    called, found = set(), {}
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if type(module).__name__ in CLASSES and not name.startswith(inside or ("\0",)):
            found[name] = module
            inside += (f"{name}.",)
    handles = [
        module.register_forward_pre_hook(lambda *_, name=name: called.add(name))
        for name, module in found.items()
    ]
    with torch.no_grad():
        args = example if isinstance(example, tuple) else () if isinstance(example, dict) else None
        if isinstance(example, dict):
            model(**example)
        else:
            model(*((example,) if args is None else args))
    for handle in handles:
        handle.remove()
    kinds = {name: type(module).__name__ for name, module in found.items()}
    return (
        Counter(kind for name, kind in kinds.items() if name in called),
        Counter(kind for name, kind in kinds.items() if name not in called),
    )
