"""Models of transformers for sounds and images, from configurations of a few small layers."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from zoo_table import Model, attribute, images, tokens
from zoo_transformers import file_of, make

SPEECH = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "conv_dim": (32,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "layerdrop": 0.0,
}
DETECTION = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "num_queries": 5,
}


def spoken() -> torch.Tensor:
    """Two short waves."""
    return torch.randn(2, 4000)


def _detector(name: str, stages: list[str]) -> nn.Module:
    backbone = attribute("transformers", "ResNetConfig")(
        embedding_size=16,
        hidden_sizes=[16, 24, 32, 40],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=stages,
    )
    config = attribute("transformers", f"{name}Config")(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        **DETECTION,
    )
    return attribute("transformers", f"{name}ForObjectDetection")(config).train()


def _rt_detr() -> nn.Module:
    backbone = attribute("transformers", "RTDetrResNetConfig")(
        embedding_size=16,
        hidden_sizes=[16, 24, 32, 40],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = attribute("transformers", "RTDetrConfig")(
        backbone_config=backbone,
        backbone=None,
        encoder_hidden_dim=32,
        encoder_in_channels=[24, 32, 40],
        d_model=32,
        num_queries=8,
        decoder_layers=2,
        decoder_in_channels=[32, 32, 32],
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
    )
    return attribute("transformers", "RTDetrForObjectDetection")(config).train()


MODELS = [
    Model(
        "transformers Wav2Vec2Model",
        make("Wav2Vec2Model", "Wav2Vec2Config", **SPEECH),
        spoken,
        {"GroupNorm": 1, "LayerNorm": 6},
        "1 in the first convolution, 1 behind all; 1 in front of 2 layers of 2",
    ),
    Model(
        "transformers Wav2Vec2ConformerModel",
        make("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", **SPEECH),
        spoken,
        {"GroupNorm": 1, "LayerNorm": 12, "BatchNorm1d": 2},
        "1 in the first convolution, 1 behind all; 2 layers of 5 and 1; 1 at the end",
        findings={"doubled_norm": 1},
        seen_in={
            "doubled_norm": (file_of("wav2vec2_conformer"), "self.final_layer_norm(hidden_states)")
        },
    ),
    Model(
        "transformers WhisperModel",
        make(
            "WhisperModel",
            "WhisperConfig",
            vocab_size=100,
            d_model=64,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=96,
            decoder_ffn_dim=96,
            max_source_positions=32,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
        lambda: {"input_features": torch.randn(2, 80, 64), "decoder_input_ids": tokens()},
        {"LayerNorm": 12},
        "2 layers of 2 in the encoder, 2 of 3 in the decoder, 1 at each end",
    ),
    Model(
        "transformers VitsModel",
        make(
            "VitsModel",
            "VitsConfig",
            vocab_size=38,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            ffn_dim=48,
            flow_size=32,
            spectrogram_bins=33,
            upsample_initial_channel=32,
            upsample_rates=[4, 4],
            upsample_kernel_sizes=[8, 8],
            prior_encoder_num_wavenet_layers=2,
            posterior_encoder_num_wavenet_layers=2,
            layerdrop=0.0,
        ),
        lambda: {"input_ids": tokens(30)},
        {"LayerNorm": 28},
        "2 in each of 2 layers; 6 for durations, 6 in each of 3 flows that synthesis takes back",
        idle={"LayerNorm": 36},
    ),
    Model(
        "transformers EncodecModel",
        make(
            "EncodecModel",
            "EncodecConfig",
            audio_channels=2,
            num_filters=8,
            hidden_size=32,
            codebook_size=16,
            codebook_dim=32,
            upsampling_ratios=[4, 2],
            norm_type="time_group_norm",
            num_lstm_layers=1,
        ),
        lambda: torch.randn(2, 2, 640),
        {"GroupNorm": 20},
        "encoder and decoder of 2 stages of 4 convolutions, and 1 at each end",
    ),
    Model(
        "transformers ConvNextV2Model",
        make(
            "ConvNextV2Model",
            "ConvNextV2Config",
            hidden_sizes=[16, 24, 32, 40],
            depths=[2, 2, 2, 2],
        ),
        images(64),
        {"ConvNextV2LayerNorm": 12, "LayerNorm": 1, "ConvNextV2GRN": 8},
        "8 blocks of one each, the stem, 3 steps down; 1 at the end",
        findings={"two_eps": 1},
        seen_in={"two_eps": (file_of("convnextv2"), "eps=config.layer_norm_eps")},
    ),
    Model(
        "transformers SegformerForSemanticSegmentation",
        make(
            "SegformerForSemanticSegmentation",
            "SegformerConfig",
            hidden_sizes=[16, 24, 32, 40],
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 2, 2, 2],
            decoder_hidden_size=32,
        ),
        images(64),
        {"LayerNorm": 19, "BatchNorm2d": 1},
        "4 stages of patches, 2 in the block, 1 at the end; 3 where keys are reduced; the head",
    ),
    Model(
        "transformers Dinov2Model",
        make(
            "Dinov2Model",
            "Dinov2Config",
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
        ),
        images(32),
        {"LayerNorm": 5},
        "2 in each of 2 layers, 1 at the end",
    ),
    Model(
        "transformers Swinv2Model",
        make(
            "Swinv2Model",
            "Swinv2Config",
            image_size=32,
            embed_dim=16,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=4,
        ),
        images(32),
        {"LayerNorm": 11, "normalize()": 4},
        "4 blocks of 2 and normalized queries and keys; patches, merging, the end",
    ),
    Model(
        "transformers DetrForObjectDetection",
        partial(_detector, "Detr", ["stage4"]),
        images(64),
        {"DetrFrozenBatchNorm2d": 12, "LayerNorm": 11},
        "the stem, 2 in each of 4 blocks, 3 shortcuts; 2 layers of 2 and 2 of 3, 1 at the end",
        findings={"doubled_norm": 1},
        seen_in={"doubled_norm": (file_of("detr"), "# finally, apply layernorm")},
    ),
    Model(
        "transformers DeformableDetrForObjectDetection",
        partial(_detector, "DeformableDetr", ["stage2", "stage3", "stage4"]),
        images(128),
        {"DeformableDetrFrozenBatchNorm2d": 12, "GroupNorm": 4, "LayerNorm": 10},
        "the backbone as in DETR; 4 scales; 2 layers of 2 and 2 of 3",
    ),
    Model(
        "transformers RTDetrForObjectDetection",
        _rt_detr,
        images(64),
        {"RTDetrFrozenBatchNorm2d": 15, "BatchNorm2d": 42, "LayerNorm": 9},
        "3 in the stem, 3 in each of 4 blocks; 3 + 3 projections, 3 + 2 + 2 convolutions between "
        "scales less 1, 4 blocks of 8 and 1 more pair; 1 layer of 2, 2 of 3, 1 for the queries",
    ),
    # 64 pixels make a first stage as high as it has channels
    Model(
        "transformers ConvNextModel (64)",
        make("ConvNextModel", "ConvNextConfig", hidden_sizes=[16, 32], depths=[1, 1], num_stages=2),
        images(64),
        {"ConvNextLayerNorm": 4, "LayerNorm": 1},
        "patches, 2 blocks, 1 step down, the end",
        findings={"two_eps": 1},
        seen_in={"two_eps": (file_of("convnext"), "eps=config.layer_norm_eps")},
    ),
]
