"""The modules of `normlab.layers`, computed by the functions of `normlab.kernels`."""

from __future__ import annotations

from torch import Tensor

from normlab import layers
from normlab.kernels.functions import batch_norm, group_norm, instance_norm, layer_norm, rms_norm


class LayerNorm(layers.LayerNorm):
    """:class:`normlab.layers.LayerNorm` by the fastest back end, with the same state dict."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(layers.RMSNorm):
    """:class:`normlab.layers.RMSNorm` by the fastest back end, with the same state dict."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        return rms_norm(input, self.normalized_shape, self.weight, self.eps)


class GroupNorm(layers.GroupNorm):
    """:class:`normlab.layers.GroupNorm` by the fastest back end, with the same state dict."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class BatchNorm1d(layers.BatchNorm1d):
    """:class:`normlab.layers.BatchNorm1d` by the fastest back end, with the same state dict."""

    _batch_norm = staticmethod(batch_norm)


class BatchNorm2d(layers.BatchNorm2d):
    """:class:`normlab.layers.BatchNorm2d` by the fastest back end, with the same state dict."""

    _batch_norm = staticmethod(batch_norm)


class InstanceNorm1d(layers.InstanceNorm1d):
    """:class:`normlab.layers.InstanceNorm1d` by the fastest back end, with the same state dict."""

    _instance_norm = staticmethod(instance_norm)


class InstanceNorm2d(layers.InstanceNorm2d):
    """:class:`normlab.layers.InstanceNorm2d` by the fastest back end, with the same state dict."""

    _instance_norm = staticmethod(instance_norm)
