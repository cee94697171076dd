"""Models of diffusers, small."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from zoo_table import Model, attribute, images


def _build(name: str, **options: Any) -> nn.Module:
    return attribute("diffusers", name)(**options).train()


def make(name: str, **options: Any) -> Callable[[], nn.Module]:
    """Makes a model of diffusers."""
    return partial(_build, name, **options)


TWO_SIZES = {"block_out_channels": (32, 64), "norm_num_groups": 8}
IMAGES = {
    "block_out_channels": (64, 128),
    "norm_num_groups": 8,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}
TIMES = torch.tensor([3, 7])


def _latents() -> torch.Tensor:
    return torch.randn(2, 4, 8, 8)


MODELS = [
    Model(
        "diffusers UNet2DModel",
        make(
            "UNet2DModel",
            sample_size=16,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            layers_per_block=1,
            attention_head_dim=8,
            **TWO_SIZES,
        ),
        lambda: (torch.randn(2, 3, 16, 16), TIMES),
        {"GroupNorm": 21},
        "2 in each of 2 + 2 + 4 residual blocks, 4 attentions, 1 at the end",
    ),
    Model(
        "diffusers UNet2DConditionModel",
        make(
            "UNet2DConditionModel",
            sample_size=16,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            layers_per_block=1,
            cross_attention_dim=24,
            attention_head_dim=8,
            **TWO_SIZES,
        ),
        lambda: (torch.randn(2, 4, 16, 16), TIMES, torch.randn(2, 5, 24)),
        {"GroupNorm": 21, "LayerNorm": 12},
        "2 in each of 8 residual blocks, 4 attentions of 1 and 3 layer norms, 1 at the end",
        findings={"two_eps": 4},
        seen_in={"two_eps": ("diffusers/models/transformers/transformer_2d.py", "eps=1e-6")},
    ),
    Model(
        "diffusers AutoencoderKL",
        make("AutoencoderKL", **IMAGES),
        images(32),
        {"GroupNorm": 24},
        "2 in each of 2 + 2 and 2 + 4 residual blocks, 1 attention and 1 at the end of each half",
    ),
    Model(
        "diffusers VQModel",
        make("VQModel", norm_type="spatial", **IMAGES),
        images(32),
        {"GroupNorm": 24},
        "as the autoencoder; in the decoder each within a norm that a map modulates",
    ),
    Model(
        "diffusers DiTTransformer2DModel",
        make(
            "DiTTransformer2DModel",
            num_attention_heads=4,
            attention_head_dim=8,
            in_channels=4,
            out_channels=4,
            num_layers=2,
            sample_size=8,
            num_embeds_ada_norm=10,
        ),
        lambda: {
            "hidden_states": _latents(),
            "timestep": TIMES,
            "class_labels": torch.tensor([1, 2]),
        },
        {"LayerNorm": 5},
        "2 in each of 2 layers, 1 at the end",
        findings={"two_eps": 2},
        seen_in={
            "two_eps": (
                "diffusers/models/transformers/dit_transformer_2d.py",
                "norm_eps: float = 1e-5",
            )
        },
    ),
    Model(
        "diffusers FluxTransformer2DModel",
        make(
            "FluxTransformer2DModel",
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=24,
            pooled_projection_dim=20,
            axes_dims_rope=(4, 6, 6),
        ),
        lambda: {
            "hidden_states": torch.randn(2, 16, 16),
            "encoder_hidden_states": torch.randn(2, 5, 24),
            "pooled_projections": torch.randn(2, 20),
            "timestep": torch.tensor([0.3, 0.7]),
            "img_ids": torch.zeros(16, 3),
            "txt_ids": torch.zeros(5, 3),
        },
        {"LayerNorm": 6, "RMSNorm": 6},
        "a double layer of 4 and 4 for queries and keys, a single one of 1 and 2, 1 at the end",
    ),
    Model(
        "diffusers SD3Transformer2DModel",
        make(
            "SD3Transformer2DModel",
            sample_size=8,
            patch_size=2,
            in_channels=4,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            joint_attention_dim=24,
            caption_projection_dim=32,
            pooled_projection_dim=20,
            out_channels=4,
            pos_embed_max_size=8,
            qk_norm="rms_norm",
        ),
        lambda: {
            "hidden_states": _latents(),
            "encoder_hidden_states": torch.randn(2, 5, 24),
            "pooled_projections": torch.randn(2, 20),
            "timestep": TIMES,
        },
        {"LayerNorm": 8, "RMSNorm": 8},
        "layers of 4 and 3, 1 at the end; 4 for queries and keys in each",
    ),
    Model(
        "diffusers UVit2DModel",
        make(
            "UVit2DModel",
            hidden_size=32,
            cond_embed_dim=20,
            micro_cond_encode_dim=8,
            micro_cond_embed_dim=40,
            encoder_hidden_size=24,
            vocab_size=17,
            codebook_size=16,
            in_channels=32,
            block_out_channels=32,
            num_res_blocks=1,
            num_hidden_layers=2,
            num_attention_heads=2,
            block_num_heads=2,
            intermediate_size=48,
            sample_size=8,
        ),
        lambda: {
            "input_ids": torch.randint(0, 16, (2, 8, 8)),
            "encoder_hidden_states": torch.randn(2, 5, 24),
            "pooled_text_emb": torch.randn(2, 20),
            "micro_conds": torch.randn(2, 5),
        },
        {"RMSNorm": 15, "LayerNorm": 2, "GlobalResponseNorm": 2},
        "tokens, text, in and out of the layers, the end; 2 steps of 3 and a response norm; 2 "
        "layers of 2 and a layer norm",
    ),
    Model(
        "diffusers SanaTransformer2DModel",
        make(
            "SanaTransformer2DModel",
            in_channels=4,
            out_channels=4,
            num_attention_heads=2,
            attention_head_dim=16,
            num_layers=2,
            num_cross_attention_heads=2,
            cross_attention_head_dim=16,
            cross_attention_dim=32,
            caption_channels=24,
            sample_size=8,
            patch_size=1,
        ),
        lambda: {
            "hidden_states": _latents(),
            "encoder_hidden_states": torch.randn(2, 5, 24),
            "timestep": TIMES,
        },
        {"LayerNorm": 5, "RMSNorm": 1},
        "2 in each of 2 layers, 1 at the end; the text",
    ),
    Model(
        "diffusers AutoencoderDC",
        make(
            "AutoencoderDC",
            in_channels=3,
            latent_channels=4,
            attention_head_dim=8,
            encoder_block_types=("ResBlock", "EfficientViTBlock"),
            decoder_block_types=("ResBlock", "EfficientViTBlock"),
            encoder_block_out_channels=(16, 32),
            decoder_block_out_channels=(16, 32),
            encoder_layers_per_block=(1, 1),
            decoder_layers_per_block=(1, 1),
            encoder_qkv_multiscales=((), (5,)),
            decoder_qkv_multiscales=((), (5,)),
            scaling_factor=1.0,
        ),
        images(32),
        {"RMSNorm": 7},
        "in each half a residual block of 1 and an attention block of 2; 1 at the end",
    ),
    Model(
        "diffusers AutoencoderKLWan",
        make(
            "AutoencoderKLWan",
            base_dim=8,
            z_dim=4,
            dim_mult=[1, 2],
            num_res_blocks=1,
            temperal_downsample=[False],
        ),
        lambda: torch.randn(1, 3, 5, 16, 16),
        {"WanRMS_norm": 24},
        "blocks of 2: 2 + 2 in the encoder, 2 + 4 in the decoder; attention and the end of each",
    ),
    Model(
        "diffusers WanTransformer3DModel",
        make(
            "WanTransformer3DModel",
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=12,
            in_channels=4,
            out_channels=4,
            text_dim=16,
            freq_dim=16,
            ffn_dim=32,
            num_layers=2,
        ),
        lambda: {
            "hidden_states": torch.randn(1, 4, 2, 8, 8),
            "timestep": torch.randint(0, 9, (1,)),
            "encoder_hidden_states": torch.randn(1, 6, 16),
        },
        {"FP32LayerNorm": 7, "RMSNorm": 8},
        "3 in each of 2 blocks, 1 at the end; queries and keys of 2 attentions in each",
    ),
]
