"""Models of MONAI, most of them for volumes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from zoo_table import Model, attribute, images


def _build(name: str, **options: Any) -> nn.Module:
    # a constructor may change the lists that it is given
    return attribute("monai.networks.nets", name)(**copy.deepcopy(options))


def make(name: str, **options: Any) -> Callable[[], nn.Module]:
    """Makes a network of MONAI."""
    return partial(_build, name, **options)


def volumes(size: int) -> Callable[[], Tensor]:
    """Makes two volumes of one channel."""
    return lambda: torch.randn(2, 1, size, size, size)


IN_3D = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}
BIASED = ("monai/networks/blocks/convolutions.py", "bias: bool = True,")

MODELS = [
    Model(
        "monai UNet",
        make("UNet", channels=(4, 8, 16), strides=(2, 2), **IN_3D),
        volumes(16),
        {"InstanceNorm3d": 4},
        "2 steps down, the bottom, 1 of 2 steps up",
        findings={"cancelled_bias": 4},
        seen_in={"cancelled_bias": BIASED},
    ),
    Model(
        "monai SegResNet",
        make("SegResNet", init_filters=8, **IN_3D),
        volumes(16),
        {"GroupNorm": 25},
        "2 in each of 1 + 2 + 2 + 4 blocks down and 3 up, 1 at the end",
    ),
    Model(
        "monai DynUNet",
        make(
            "DynUNet",
            kernel_size=[3, 3, 3],
            strides=[1, 2, 2],
            upsample_kernel_size=[2, 2],
            filters=[4, 8, 16],
            **IN_3D,
        ),
        volumes(16),
        {"InstanceNorm3d": 10},
        "2 in each of 5 blocks",
    ),
    Model(
        "monai UNETR",
        make(
            "UNETR",
            in_channels=1,
            out_channels=2,
            img_size=32,
            feature_size=4,
            hidden_size=48,
            mlp_dim=64,
            num_heads=4,
        ),
        volumes(32),
        {"LayerNorm": 25, "InstanceNorm3d": 21},
        "2 in each of 12 layers, 1 at the end; 3 for the image, 4 + 2 for the skips, 3 in each of "
        "4 steps up",
        idle={"LayerNorm": 12},
        findings={"unused_norm": 12},
        seen_in={
            "unused_norm": ("monai/networks/blocks/transformerblock.py", "self.norm_cross_attn =")
        },
    ),
    Model(
        "monai SwinUNETR",
        make(
            "SwinUNETR",
            in_channels=1,
            out_channels=2,
            feature_size=12,
            depths=(1, 1, 1, 1),
            num_heads=(1, 2, 2, 2),
        ),
        volumes(64),
        {"LayerNorm": 12, "layer_norm()": 1, "InstanceNorm3d": 26},
        "4 blocks of 2, 4 mergings, a function for all stages; 3 + 4 × 2 and 5 × 3 in the skips "
        "and steps up",
    ),
    Model(
        "monai VNet",
        make("VNet", **IN_3D),
        volumes(32),
        {"BatchNorm3d": 24},
        "4 steps down of 1 and 1 + 2 + 3 + 2, 4 up of 1 and 2 + 2 + 1 + 1, 1 at each end",
        findings={"cancelled_bias": 4},
        seen_in={"cancelled_bias": ("monai/networks/nets/vnet.py", "self.up_conv = ")},
    ),
    Model(
        "monai SPADENet",
        make(
            "SPADENet",
            spatial_dims=2,
            in_channels=1,
            out_channels=1,
            label_nc=3,
            input_shape=[32, 32],
            channels=[8, 16],
            z_dim=8,
        ),
        lambda: (torch.rand(2, 3, 32, 32).round(), torch.randn(2, 1, 32, 32)),
        {"InstanceNorm2d": 20},
        "2 in the encoder; 2 blocks of 3 conditioned norms: 1 in each, and 1 on each of its 2 maps",
        findings={"cancelled_bias": 16},
        seen_in={"cancelled_bias": ("monai/networks/blocks/spade_norm.py", "self.mlp_gamma =")},
    ),
    Model(
        "monai PatchDiscriminator",
        make("PatchDiscriminator", spatial_dims=2, channels=8, in_channels=1, num_layers_d=2),
        images(32, channels=1),
        {"BatchNorm2d": 2},
        "1 in each of 2 layers",
    ),
    Model(
        "monai Generator",
        make(
            "Generator",
            latent_shape=(8,),
            start_shape=(8, 4, 4),
            channels=[8, 8, 1],
            strides=[2, 2, 1],
        ),
        lambda: torch.randn(2, 8),
        {"InstanceNorm2d": 5},
        "3 residual units of 2, less the last convolution",
        findings={"cancelled_bias": 5},
        seen_in={"cancelled_bias": BIASED},
    ),
    Model(
        "monai DiffusionModelUNet",
        make(
            "DiffusionModelUNet",
            spatial_dims=2,
            in_channels=1,
            out_channels=1,
            channels=(8, 16),
            attention_levels=(False, True),
            num_res_blocks=1,
            norm_num_groups=4,
            num_head_channels=8,
        ),
        lambda: (torch.randn(2, 1, 16, 16), torch.tensor([3, 7])),
        {"GroupNorm": 21},
        "2 in each of 2 + 2 + 4 residual blocks, 4 attentions, 1 at the end",
    ),
]
