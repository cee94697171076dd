"""Models of denoising-diffusion-pytorch, vit-pytorch and vector-quantize-pytorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from zoo_table import Model, attribute, images

DDPM = "denoising_diffusion_pytorch"


def _build(module: str, name: str, **options: Any) -> nn.Module:
    return attribute(module, name)(**options)


def make(module: str, name: str, **options: Any) -> Callable[[], nn.Module]:
    """Makes a model from the module of a library and the name of its class."""
    return partial(_build, module, name, **options)


def vit(module: str, name: str) -> Callable[[], nn.Module]:
    """Makes a small vision transformer of two layers."""
    sizes = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "depth": 2, "heads": 2}
    own = {"cls_depth": 1} if name == "XCiT" else {}
    own |= {} if name == "ViT" else {"dim_head": 8}
    return partial(_build, f"vit_pytorch.{module}", name, mlp_dim=32, **sizes, **own)


def noisy() -> tuple[Tensor, Tensor]:
    """Images, and how many steps of noise they have."""
    return torch.randn(2, 3, 16, 16), torch.randint(0, 9, (2,))


UNET = {"dim": 16, "dim_mults": (1, 2)}
MODELS = [
    Model(
        "denoising_diffusion_pytorch Unet",
        make(DDPM, "Unet", **UNET),
        noisy,
        {"RMSNorm": 29},
        "11 residual blocks of 2; 2 in each of 2 linear attentions, 1 in each of 3 full ones",
        findings={"half_statistics": 29},
        seen_in={
            "half_statistics": (
                f"{DDPM}/denoising_diffusion_pytorch.py",
                "F.normalize(x, dim = 1) * self.g * self.scale",
            )
        },
    ),
    Model(
        "denoising_diffusion_pytorch guided_diffusion.Unet",
        make(f"{DDPM}.guided_diffusion", "Unet", **UNET),
        noisy,
        {"RMSNorm": 31},
        "11 residual blocks of 2; 2 in each of 4 linear attentions, 1 in the middle",
        findings={"half_statistics": 14, "size_dependent_gain": 17},
        seen_in=dict.fromkeys(
            ("half_statistics", "size_dependent_gain"),
            (f"{DDPM}/guided_diffusion.py", "self.g * (x.shape[-1] ** 0.5)"),
        ),
    ),
    Model(
        "denoising_diffusion_pytorch KarrasUnet",
        make(
            DDPM,
            "KarrasUnet",
            image_size=16,
            dim=16,
            num_downsamples=1,
            num_blocks_per_stage=1,
            attn_res=(8,),
            attn_dim_head=8,
            fourier_dim=8,
        ),
        lambda: (torch.randn(2, 4, 16, 16), torch.rand(2)),
        {"PixelNorm": 9},
        "1 in each of 3 blocks down, 1 in each of 6 attentions; weights are normalized, too",
        findings={"half_statistics": 9},
        seen_in={
            "half_statistics": (f"{DDPM}/karras_unet.py", "F.normalize(t, dim = dim, eps = eps)")
        },
    ),
    Model(
        "denoising_diffusion_pytorch UViT",
        make(
            f"{DDPM}.simple_diffusion",
            "UViT",
            **UNET,
            vit_depth=1,
            attn_heads=2,
            attn_dim_head=8,
            downsample_factor=2,
        ),
        lambda: (torch.randn(2, 3, 16, 16), torch.rand(2)),
        {"RMSNorm": 28, "normalize()": 1},
        "9 residual blocks of 2, 4 linear attentions of 2, 2 in the transformer; its queries and "
        "keys over their length",
        findings={"half_statistics": 28},
        seen_in={
            "half_statistics": (
                f"{DDPM}/simple_diffusion.py",
                "F.normalize(x, dim = normalize_dim)",
            )
        },
    ),
    Model(
        "vit_pytorch ViT (5)",
        vit("vit_5", "ViT"),
        images(32),
        {"RMSNorm": 9},
        "2 in each of 2 layers, queries and keys with a weight for each head, 1 at the end",
        findings={"half_statistics": 4},
        seen_in={"half_statistics": ("vit_pytorch/vit_5.py", "F.normalize(x, dim=-1)")},
    ),
    Model(
        "vit_pytorch XCiT",
        vit("xcit", "XCiT"),
        images(32),
        {"LayerNorm": 12, "BatchNorm2d": 2, "normalize()": 2},
        "2 for the patches; 3 and a batch norm in each of 2 layers, queries and keys over their "
        "length; 2 in the last layer, 1 in front of it, 1 behind",
        findings={"cancelled_bias": 2},
        seen_in={"cancelled_bias": ("vit_pytorch/xcit.py", "nn.BatchNorm2d(dim)")},
    ),
    Model(
        "vit_pytorch nViT",
        vit("normalized_vit", "nViT"),
        images(32),
        {"normalize()": 3},
        "tokens, and queries and keys in each of 2 layers, over their length; so are all weights",
    ),
    Model(
        "vector_quantize_pytorch ResidualVQ",
        make("vector_quantize_pytorch", "ResidualVQ", dim=16, codebook_size=8, num_quantizers=2),
        lambda: torch.randn(2, 6, 16),
        {},
        "none: what is nearest in a table of vectors is taken",
    ),
    Model(
        "vector_quantize_pytorch VectorQuantize (cosine)",
        make(
            "vector_quantize_pytorch",
            "VectorQuantize",
            dim=16,
            codebook_size=8,
            use_cosine_sim=True,
        ),
        lambda: torch.randn(2, 6, 16),
        {"normalize()": 2},
        "vectors over their length, in front of the table and when it is moved",
    ),
]
