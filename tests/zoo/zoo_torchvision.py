"""Models of torchvision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from zoo_table import Model, attribute, images


def _build(module: str, name: str, **options: Any) -> nn.Module:
    return attribute(f"torchvision.models{module}", name)(**options)


def make(name: str, module: str = "", **options: Any) -> Callable[[], nn.Module]:
    """Makes a model of torchvision without weights."""
    return partial(_build, module, name, **options)


def _swin() -> nn.Module:
    module = "torchvision.models.swin_transformer"
    return attribute(module, "SwinTransformer")(
        patch_size=[4, 4],
        embed_dim=24,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=[4, 4],
        block=attribute(module, "SwinTransformerBlockV2"),
        downsample_layer=attribute(module, "PatchMergingV2"),
    )


MODELS = [
    Model(
        "torchvision resnet18",
        make("resnet18"),
        images(64),
        {"BatchNorm2d": 20},
        "2 in each of 8 blocks, 3 shortcuts, the stem",
    ),
    Model(
        "torchvision DenseNet",
        make("DenseNet", growth_rate=8, block_config=(2, 2, 2, 2), num_init_features=16),
        images(64),
        {"BatchNorm2d": 21},
        "2 in each of 8 layers, 3 transitions, the stem, 1 at the end",
    ),
    Model(
        "torchvision mobilenet_v2",
        make("mobilenet_v2"),
        images(64),
        {"BatchNorm2d": 52},
        "2 in the first block, 3 in each of 16, the stem, the last convolution",
    ),
    Model(
        "torchvision googlenet",
        make("googlenet", init_weights=False, aux_logits=False),
        images(64),
        {"BatchNorm2d": 57},
        "3 in front, 6 in each of 9 blocks",
    ),
    Model(
        "torchvision convnext_tiny",
        make("convnext_tiny"),
        images(64),
        {"LayerNorm": 18, "LayerNorm2d": 5},
        "3 + 3 + 9 + 3 blocks; stem, 3 steps down, classifier",
    ),
    Model(
        "torchvision SwinTransformer (v2)",
        _swin,
        images(32),
        {"LayerNorm": 11, "normalize()": 4},
        "4 blocks of 2 and normalized queries and keys; patches, merging, the end",
    ),
    Model(
        "torchvision deeplabv3_mobilenet_v3_large",
        make("deeplabv3_mobilenet_v3_large", ".segmentation", weights_backbone=None),
        images(64),
        {"BatchNorm2d": 53},
        "46 in the backbone; in the head 5 branches, their sum, 1 more",
        findings={"two_eps": 7},
        seen_in={"two_eps": ("torchvision/models/mobilenetv3.py", "eps=0.001")},
    ),
    Model(
        "torchvision VisionTransformer",
        make(
            "VisionTransformer",
            image_size=32,
            patch_size=8,
            num_layers=3,
            num_heads=4,
            hidden_dim=48,
            mlp_dim=96,
        ),
        images(32),
        {"LayerNorm": 7},
        "2 in each of 3 blocks, 1 at the end",
    ),
    Model(
        "torchvision r3d_18",
        make("r3d_18", ".video"),
        lambda: torch.randn(2, 3, 4, 32, 32),
        {"BatchNorm3d": 20},
        "2 in each of 8 blocks, 3 shortcuts, the stem",
    ),
    Model(
        "torchvision raft_small",
        make("raft_small", ".optical_flow"),
        lambda: (torch.randn(2, 3, 128, 128), torch.randn(2, 3, 128, 128)),
        {"InstanceNorm2d": 21},
        "one encoder of two: 3 in each of 6 blocks, 2 shortcuts, the stem",
        findings={"cancelled_bias": 21},
        seen_in={"cancelled_bias": ("torchvision/models/optical_flow/raft.py", "bias=True")},
    ),
]
