"""Models of timm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from zoo_table import Model, attribute, images


def _build(name: str, **options: Any) -> nn.Module:
    return attribute("timm", "create_model")(name, pretrained=False, num_classes=5, **options)


def make(name: str, **options: Any) -> Callable[[], nn.Module]:
    """Makes a model of timm with five classes."""
    return partial(_build, name, **options)


MODELS = [
    Model(
        "timm resnetv2_50",
        make("resnetv2_50"),
        images(64),
        {"BatchNormAct2d": 49},
        "3 in each of 3 + 4 + 6 + 3 blocks, 1 at the end",
    ),
    Model(
        "timm resnetv2_50x1_bit",
        make("resnetv2_50x1_bit"),
        images(64),
        {"GroupNormAct": 49},
        "3 in each of 16 blocks, 1 at the end",
    ),
    Model(
        "timm resnetv2_50d_evos",
        make("resnetv2_50d_evos"),
        images(64),
        {"EvoNorm2dS0": 51},
        "2 in the stem, 3 in each of 16 blocks, 1 at the end",
    ),
    Model(
        "timm resnetv2_50d_frn",
        make("resnetv2_50d_frn"),
        images(64),
        {"FilterResponseNormTlu2d": 51},
        "2 in the stem, 3 in each of 16 blocks, 1 at the end",
    ),
    Model(
        "timm efficientnet_b0",
        make("efficientnet_b0"),
        images(64),
        {"BatchNormAct2d": 49},
        "stem, head, 2 in the first block, 3 in each of 15 others",
    ),
    Model(
        "timm maxvit_rmlp_pico_rw_256",
        make("maxvit_rmlp_pico_rw_256", img_size=64),
        images(64),
        {"BatchNormAct2d": 34, "LayerNorm": 44, "LayerNorm2d": 1},
        "2 + 2 + 5 + 2 blocks of 3 batch norms and 4 layer norms; stem; the end",
    ),
    Model(
        "timm convnextv2_atto",
        make("convnextv2_atto"),
        images(64),
        {"LayerNorm2d": 17, "GlobalResponseNorm": 12},
        "2 + 2 + 6 + 2 blocks of one each; stem, 3 steps down, head",
    ),
    Model(
        "timm vit_tiny_patch16_224",
        make("vit_tiny_patch16_224", img_size=64),
        images(64),
        {"LayerNorm": 25},
        "2 in each of 12 blocks, 1 at the end",
    ),
    Model(
        "timm swin_tiny_patch4_window7_224",
        make("swin_tiny_patch4_window7_224", img_size=56, depths=(2, 2, 2, 2)),
        images(56),
        {"LayerNorm": 21},
        "2 in each of 8 blocks, the patches, 3 mergings, 1 at the end",
    ),
    Model(
        "timm xcit_nano_12_p16_224",
        make("xcit_nano_12_p16_224", img_size=64, depth=3),
        images(64),
        {"BatchNorm2d": 7, "LayerNorm": 14, "normalize()": 3},
        "4 convolutions of the patches; 3 blocks of 3 layer norms, 1 batch norm and normalized "
        "queries and keys; 2 blocks of 2 for the class; 1 at the end",
    ),
    Model(
        "timm levit_128s",
        make("levit_128s"),
        images(224),
        {"BatchNorm2d": 4, "BatchNorm1d": 48},
        "4 in the stem; 4 in each of 2 + 3 + 4 blocks, 5 in each of 2 steps down, 2 heads",
        findings={"zero_weight": 20},
        seen_in={"zero_weight": ("timm/models/levit.py", "bn_weight_init=0")},
    ),
    Model(
        "timm regnety_002",
        make("regnety_002"),
        images(64),
        {"BatchNormAct2d": 44},
        "3 in each of 1 + 1 + 4 + 7 blocks, 4 shortcuts, the stem",
        findings={"zero_weight": 13},
        seen_in={"zero_weight": ("timm/models/regnet.py", "nn.init.zeros_")},
    ),
    Model(
        "timm poolformer_s12",
        make("poolformer_s12"),
        images(64),
        {"GroupNorm1": 24, "LayerNorm2d": 1},
        "2 in each of 2 + 2 + 6 + 2 blocks, 1 in the head",
    ),
    Model(
        "timm nf_resnet26",
        make("nf_resnet26"),
        images(64),
        {},
        "free of norms; its 29 filters are standardized",
    ),
    Model(
        "timm visformer_tiny",
        make("visformer_tiny", img_size=64),
        images(64),
        {"BatchNorm2d": 28},
        "stem; 3 for the patches; 1 in each of 7 blocks, 2 in each of 8; 1 at the end",
        findings={"cancelled_bias": 3},
        seen_in={"cancelled_bias": ("timm/layers/patch_embed.py", "bias: bool = True,")},
    ),
    Model(
        "timm resmlp_12_224",
        make("resmlp_12_224", img_size=64),
        images(64),
        {"Affine": 25},
        "2 in each of 12 blocks, 1 at the end: a scale and a shift under the name of a norm",
    ),
    Model(
        "timm nfnet_f0",
        make("nfnet_f0"),
        images(64),
        {},
        "free of norms; its 57 filters are standardized",
    ),
    # sizes at which the height of a stage is its number of channels
    Model(
        "timm convnext_atto (160)",
        make("convnext_atto"),
        images(160),
        {"LayerNorm2d": 17},
        "2 + 2 + 6 + 2 blocks; stem, 3 steps down, classifier",
    ),
    Model(
        "timm convnext_pico (256)",
        make("convnext_pico"),
        images(256),
        {"LayerNorm2d": 17},
        "2 + 2 + 6 + 2 blocks; stem, 3 steps down, classifier",
    ),
    Model(
        "timm edgenext_xx_small (96)",
        make("edgenext_xx_small"),
        images(96),
        {"LayerNorm2d": 5, "LayerNorm": 15, "normalize()": 3},
        "stem, 3 steps down, classifier; 2 + 2 + 6 + 2 blocks, of which the last of 3 stages has "
        "attention with a norm more and normalized queries and keys",
    ),
]
