"""A model of open_clip: image and text, with a mask of infinities in a buffer."""

from __future__ import annotations

import torch
from torch import nn
from zoo_table import Model, attribute, tokens


def _clip() -> nn.Module:
    vision = attribute("open_clip.model", "CLIPVisionCfg")(
        layers=2, width=64, head_width=16, patch_size=8, image_size=32
    )
    text = attribute("open_clip.model", "CLIPTextCfg")(
        context_length=12, vocab_size=100, width=48, heads=4, layers=2
    )
    return attribute("open_clip.model", "CLIP")(32, vision, text)


MODELS = [
    Model(
        "open_clip_torch CLIP",
        _clip,
        lambda: (torch.randn(2, 3, 32, 32), tokens()),
        {"LayerNorm": 11, "normalize()": 1},
        "2 in each of 2 + 2 blocks; 2 around those of the image, 1 behind those of the text; both "
        "features over their length",
    ),
]
