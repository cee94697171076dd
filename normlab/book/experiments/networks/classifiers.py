"""Small networks whose norm is chosen by name; one seed gives every norm the same weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from normlab.layers import BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm, RMSNorm

FeatureNorm = Literal["none", "batch_norm", "layer_norm", "rms_norm"]
ImageNorm = Literal["none", "batch_norm", "group_norm", "layer_norm"]
Activation = Literal["relu", "tanh", "sigmoid", "none"]
Init = Literal["default", "he"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "none": nn.Identity,
}


def _make(name: str, size: int, kinds: Mapping[str, Callable[[int], nn.Module]]) -> nn.Module:
    if name not in kinds:
        *first, last = map(repr, kinds)
        raise ValueError(f"name: got {name!r}; expected {', '.join(first)} or {last}")
    return kinds[name](size)


def make_feature_norm(name: FeatureNorm, num_features: int) -> nn.Module:
    """Build the named norm for inputs (N, C), with the defaults of torch."""
    kinds: dict[str, Callable[[int], nn.Module]] = {
        "none": nn.Identity,
        "batch_norm": BatchNorm1d,
        "layer_norm": LayerNorm,
        "rms_norm": RMSNorm,
    }
    return _make(name, num_features, kinds)


class PositionLayerNorm(nn.Module):
    """LayerNorm over the channels of each position of (N, C, H, W), as in ConvNeXt.

    Source:
        liu2022convnet, Section 2.5.
    """

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        self.norm = LayerNorm(num_channels)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize every position over its channels."""
        y: Tensor = self.norm(input.movedim(1, -1))
        return y.movedim(-1, 1)


def make_image_norm(name: ImageNorm, num_channels: int) -> nn.Module:
    """Build the named norm for inputs (N, C, H, W), with the defaults of torch.

    Args:
        name: "none", "batch_norm", "group_norm" (one group: all of a sample) or "layer_norm"
            (the channels of each position).
    """
    kinds: dict[str, Callable[[int], nn.Module]] = {
        "none": nn.Identity,
        "batch_norm": BatchNorm2d,
        "group_norm": functools.partial(GroupNorm, 1),
        "layer_norm": PositionLayerNorm,
    }
    return _make(name, num_channels, kinds)


def _activation(name: Activation) -> nn.Module:
    if name not in ACTIVATIONS:
        raise ValueError(f"activation: got {name!r}; expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()


def _initialize(layers: Sequence[nn.Module], init: Init) -> None:
    """Redraw the hidden weights as He et al. do; "default" keeps torch's distribution."""
    if init not in ("default", "he"):
        raise ValueError(f"init: got {init!r}; expected 'default' or 'he'")
    if init == "he":
        for layer in layers:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)


def make_mlp(
    widths: Sequence[int],
    norm: FeatureNorm = "none",
    *,
    seed: int,
    activation: Activation = "relu",
    init: Init = "default",
) -> nn.Sequential:
    """Build linear → norm → activation for each hidden layer and a plain linear output.

    The norm stands on the summed inputs, before the activation, as in both papers. The norms
    draw no random numbers, so one seed gives every norm the same initial weights.

    Args:
        init: "default", torch's distribution, or "he", normal with variance 2 / fan_in.

    Shape:
        the network maps (N, widths[0]) to (N, widths[-1]).

    Source:
        ioffe2015batch, Section 3.2; ba2016layer, Eq. 4; he2015delving, Eq. 10.
    """
    if len(widths) < 2:
        raise ValueError(f"widths: got {tuple(widths)}; expected at least input and output size")
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for fan_in, fan_out in zip(widths[:-2], widths[1:-1], strict=True):
            layers.append(nn.Linear(fan_in, fan_out))
            layers.append(make_feature_norm(norm, fan_out))
            layers.append(_activation(activation))
        layers.append(nn.Linear(widths[-2], widths[-1]))
        _initialize(layers, init)
    return nn.Sequential(*layers)


def make_convnet(
    channels: Sequence[int],
    norm: ImageNorm = "none",
    *,
    seed: int,
    num_classes: int = 10,
    init: Init = "default",
) -> nn.Sequential:
    """Build 3 by 3 convolution → norm → ReLU blocks, the mean over positions, a linear output.

    Every second block, from the second on, halves height and width by its stride.

    Args:
        init: "default", torch's distribution, or "he", normal with variance 2 / fan_in.

    Shape:
        the network maps (N, channels[0], H, W) to (N, num_classes).

    Source:
        ioffe2015batch, Section 3.2; he2015delving, Eq. 10.
    """
    if len(channels) < 2:
        raise ValueError(f"channels: got {tuple(channels)}; expected input and block sizes")
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for i, (fan_in, fan_out) in enumerate(zip(channels[:-1], channels[1:], strict=True)):
            stride = 1 + i % 2
            layers.append(nn.Conv2d(fan_in, fan_out, 3, stride=stride, padding=1))
            layers.append(make_image_norm(norm, fan_out))
            layers.append(nn.ReLU())
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], num_classes)]
        _initialize(layers, init)
    return nn.Sequential(*layers)
