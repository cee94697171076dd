"""What parameters, buffers and attributes of a norm are usually called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

# by role of an argument in `torch.nn.functional`
NAMES: dict[str, tuple[str, ...]] = {
    "normalized_shape": ("normalized_shape", "shape", "norm_shape", "dim", "dims"),
    "num_groups": ("num_groups", "groups", "n_groups", "ngroups", "g"),
    "running_mean": ("running_mean", "moving_mean", "mean", "running_mu"),
    "running_var": ("running_var", "moving_var", "moving_variance", "var", "running_variance"),
    "weight": ("weight", "gamma", "g", "gain", "scale", "a_2", "w"),
    "bias": ("bias", "beta", "b", "shift", "b_2", "offset"),
    "training": ("training", "train", "is_training", "use_input_stats"),
    "momentum": ("momentum", "m", "mom"),
    "num_features": ("num_features", "num_channels"),
    "eps": ("eps", "variance_epsilon", "epsilon", "e"),
}


def find_name(names: Iterable[str], role: str) -> str | None:
    """The dotted name that ends in a usual name of this role; the most usual one first."""
    ends = {name.rpartition(".")[2]: name for name in reversed(list(names))}
    return next((ends[usual] for usual in NAMES[role] if usual in ends), None)


def find_running_names(names: Sequence[str]) -> tuple[str | None, str | None]:
    """The buffers with "mean" and "var" at the end of their names."""
    mean = next((n for n in names if "mean" in n.rpartition(".")[2]), None)
    return mean, next((n for n in names if "var" in n.rpartition(".")[2] and n != mean), None)


def find_attribute(module: nn.Module, role: str) -> Any:
    """First number under a usual name of this role, of a module or a part of it."""
    names = [name for name in NAMES[role] if len(name) > 1]  # a letter may be anything
    for part in module.modules():
        for name in names:
            value = getattr(part, name, None)
            if isinstance(value, Tensor) and value.numel() == 1:
                value = float(value)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return value
    return None
