"""Models of segmentation_models_pytorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn
from zoo_table import Model, attribute, images


def _build(name: str, encoder: str) -> nn.Module:
    return attribute("segmentation_models_pytorch", name)(
        encoder_name=encoder, encoder_weights=None
    )


def make(name: str, encoder: str) -> Callable[[], nn.Module]:
    """Makes a model for segmentation around an encoder."""
    return partial(_build, name, encoder)


_EFFICIENTNET = "segmentation_models_pytorch/encoders/_efficientnet.py"
MODELS = [
    Model(
        "segmentation_models_pytorch Unet (resnet18)",
        make("Unet", "resnet18"),
        images(64),
        {"BatchNorm2d": 30},
        "20 in the encoder, 2 in each of 5 blocks",
    ),
    Model(
        "segmentation_models_pytorch FPN (resnet18)",
        make("FPN", "resnet18"),
        images(64),
        {"BatchNorm2d": 20, "GroupNorm": 7},
        "the encoder; 3 + 2 + 1 + 1 steps up",
    ),
    Model(
        "segmentation_models_pytorch PSPNet (resnet18)",
        make("PSPNet", "resnet18"),
        images(64),
        {"BatchNorm2d": 14},
        "10 of the encoder, 3 of 4 sizes of pooling, 1 behind them",
        idle={"BatchNorm2d": 10},
    ),
    Model(
        "segmentation_models_pytorch Segformer (mit_b0)",
        make("Segformer", "mit_b0"),
        images(64),
        {"LayerNorm": 30, "BatchNorm2d": 1},
        "4 stages of patches, 2 blocks of 2, 1 at the end; 3 × 2 where keys are reduced; the head",
        findings={"two_eps": 10},
        seen_in={
            "two_eps": (
                "segmentation_models_pytorch/encoders/mix_transformer.py",
                '"norm_layer": partial(LayerNorm, eps=1e-6)',
            )
        },
    ),
    Model(
        "segmentation_models_pytorch MAnet (efficientnet-b0)",
        make("MAnet", "efficientnet-b0"),
        images(64),
        {"BatchNorm2d": 66},
        "48 in the encoder without its head; 4 blocks of 4, 1 of 2",
        idle={"BatchNorm2d": 1},
        findings={"two_eps": 18, "unused_norm": 1},
        seen_in={
            "two_eps": (_EFFICIENTNET, "batch_norm_epsilon=1e-3"),
            "unused_norm": (_EFFICIENTNET, "self._bn1(self._conv_head(x))"),
        },
    ),
    Model(
        "segmentation_models_pytorch UPerNet (convnext_atto)",
        make("UPerNet", "tu-convnext_atto"),
        images(64),
        {"LayerNorm2d": 20, "BatchNorm2d": 12},
        "12 blocks, the stem, 3 steps down, 4 features; 4 sizes of pooling and 1, 3 + 3 scales, 1",
    ),
]
