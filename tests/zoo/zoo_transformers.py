"""Language models of transformers, from configurations of a few small layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from zoo_table import Model, attribute, tokens


def _build(name: str, config: str, **options: Any) -> nn.Module:
    made = attribute("transformers", config)(**options)
    return attribute("transformers", name)(made).train()


def make(name: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    """Makes a model of transformers from its class and that of its configuration."""
    return partial(_build, name, config, **options)


SIZES = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
HEADS = {**GROUPED, "head_dim": 16}


def text() -> dict[str, Any]:
    """Tokens by name."""
    return {"input_ids": tokens()}


def both() -> dict[str, Any]:
    """Tokens for encoder and decoder."""
    return {"input_ids": tokens(), "decoder_input_ids": tokens()}


def file_of(name: str) -> str:
    """Where transformers defines the model of this name."""
    return f"transformers/models/{name}/modeling_{name}.py"


MODELS = [
    Model(
        "transformers LlamaForCausalLM",
        make("LlamaForCausalLM", "LlamaConfig", **GROUPED),
        text,
        {"LlamaRMSNorm": 7},
        "2 in each of 3 layers, 1 at the end",
    ),
    Model(
        "transformers Gemma3ForCausalLM",
        make("Gemma3ForCausalLM", "Gemma3TextConfig", **HEADS),
        text,
        {"Gemma3RMSNorm": 19},
        "3 layers of 4 in the stream, queries and keys; 1 at the end",
    ),
    Model(
        "transformers Qwen3ForCausalLM",
        make("Qwen3ForCausalLM", "Qwen3Config", **HEADS),
        text,
        {"Qwen3RMSNorm": 13},
        "3 layers of 2 in the stream, queries and keys; 1 at the end",
    ),
    Model(
        "transformers OlmoForCausalLM",
        make("OlmoForCausalLM", "OlmoConfig", **GROUPED),
        text,
        {"OlmoLayerNorm": 7},
        "2 in each of 3 layers, 1 at the end",
    ),
    Model(
        "transformers Olmo2ForCausalLM",
        make("Olmo2ForCausalLM", "Olmo2Config", **GROUPED),
        text,
        {"Olmo2RMSNorm": 13},
        "3 layers of 2 behind the sublayers, queries and keys; 1 at the end",
    ),
    Model(
        "transformers CohereForCausalLM",
        make("CohereForCausalLM", "CohereConfig", **GROUPED, use_qk_norm=True),
        text,
        {"CohereLayerNorm": 10},
        "3 layers of 1 for both sublayers, queries and keys; 1 at the end",
    ),
    Model(
        "transformers NemotronForCausalLM",
        make("NemotronForCausalLM", "NemotronConfig", **HEADS),
        text,
        {"NemotronLayerNorm1P": 7},
        "2 in each of 3 layers, 1 at the end",
        findings={"offset_convention": 7},
        seen_in={"offset_convention": (file_of("nemotron"), "init.ones_(module.weight)")},
    ),
    Model(
        "transformers StableLmForCausalLM",
        make("StableLmForCausalLM", "StableLmConfig", **GROUPED, qk_layernorm=True),
        text,
        {"LayerNorm": 25},
        "3 layers of 2 in the stream, 4 and 2 for the heads of queries and keys; 1 at the end",
    ),
    Model(
        "transformers GPT2LMHeadModel",
        make(
            "GPT2LMHeadModel",
            "GPT2Config",
            vocab_size=100,
            n_embd=64,
            n_layer=3,
            n_head=4,
            n_positions=32,
            bos_token_id=1,
            eos_token_id=2,
        ),
        text,
        {"LayerNorm": 7},
        "2 in each of 3 layers, 1 at the end",
    ),
    Model(
        "transformers BertModel",
        make("BertModel", "BertConfig", **SIZES),
        text,
        {"LayerNorm": 7},
        "1 for the embeddings, 2 in each of 3 layers",
    ),
    Model(
        "transformers AlbertModel",
        make("AlbertModel", "AlbertConfig", **SIZES, embedding_size=32),
        text,
        {"LayerNorm": 3},
        "1 for the embeddings, 2 in the one layer that is called three times",
    ),
    Model(
        "transformers BloomForCausalLM",
        make(
            "BloomForCausalLM", "BloomConfig", vocab_size=100, hidden_size=64, n_layer=3, n_head=4
        ),
        text,
        {"LayerNorm": 8},
        "1 for the embeddings, 2 in each of 3 layers, 1 at the end",
    ),
    Model(
        "transformers MambaForCausalLM",
        make(
            "MambaForCausalLM",
            "MambaConfig",
            vocab_size=100,
            hidden_size=64,
            num_hidden_layers=3,
            state_size=8,
        ),
        text,
        {"MambaRMSNorm": 4},
        "1 in each of 3 layers, 1 at the end",
    ),
    Model(
        "transformers Mamba2ForCausalLM",
        make(
            "Mamba2ForCausalLM",
            "Mamba2Config",
            vocab_size=100,
            hidden_size=64,
            num_hidden_layers=2,
            state_size=8,
            head_dim=16,
            num_heads=8,
            n_groups=2,
        ),
        text,
        {"Mamba2RMSNorm": 3, "MambaRMSNormGated": 2},
        "2 layers of one each, 1 at the end; the gated one multiplies its input by a gate first",
    ),
    Model(
        "transformers RwkvForCausalLM",
        make("RwkvForCausalLM", "RwkvConfig", vocab_size=100, hidden_size=64, num_hidden_layers=3),
        text,
        {"LayerNorm": 8},
        "2 in each of 3 layers, 1 before the first, 1 at the end",
    ),
    Model(
        "transformers T5Model",
        make(
            "T5Model",
            "T5Config",
            vocab_size=100,
            d_model=64,
            d_kv=16,
            d_ff=96,
            num_layers=2,
            num_heads=4,
        ),
        both,
        {"T5LayerNorm": 12},
        "2 layers of 2 in the encoder, 2 of 3 in the decoder, 1 at each end; without a mean, "
        "in spite of the name",
    ),
    Model(
        "transformers DeepseekV3ForCausalLM",
        make(
            "DeepseekV3ForCausalLM",
            "DeepseekV3Config",
            **SIZES,
            num_key_value_heads=4,
            q_lora_rank=24,
            kv_lora_rank=16,
            qk_rope_head_dim=8,
            v_head_dim=16,
            qk_nope_head_dim=16,
            moe_intermediate_size=48,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            first_k_dense_replace=1,
        ),
        text,
        {"DeepseekV3RMSNorm": 13},
        "3 layers of 2 in the stream and 2 in latent attention, 1 at the end",
    ),
    Model(
        "transformers FalconMambaForCausalLM",
        make(
            "FalconMambaForCausalLM",
            "FalconMambaConfig",
            vocab_size=100,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=8,
            bos_token_id=1,
            eos_token_id=1,
        ),
        text,
        {"FalconMambaRMSNorm": 3, "FalconMambaWeightlessRMSNorm": 6},
        "1 in front of each of 2 mixers, 1 at the end; B, C and the step in each mixer",
        findings={"two_eps": 3},
        seen_in={
            "two_eps": (
                "transformers/models/falcon_mamba/configuration_falcon_mamba.py",
                "mixer_rms_eps: float",
            )
        },
    ),
    Model(
        "transformers Qwen3NextForCausalLM",
        make(
            "Qwen3NextForCausalLM",
            "Qwen3NextConfig",
            vocab_size=100,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=2,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            num_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
            layer_types=["linear_attention", "full_attention"],
        ),
        text,
        {"Qwen3NextRMSNorm": 7, "Qwen3NextRMSNormGated": 1, "sum()": 1},
        "2 layers of 2, queries and keys of the one with full attention, 1 at the end; a gated one "
        "and queries and keys over their lengths, written out, in the linear one",
    ),
    Model(
        "transformers MobileBertModel",
        make(
            "MobileBertModel",
            "MobileBertConfig",
            vocab_size=100,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            intra_bottleneck_size=16,
            embedding_size=32,
            true_hidden_size=16,
        ),
        text,
        {"NoNorm": 17},
        "embeddings and 8 in each of 2 layers: a scale and a shift under the name of a norm",
    ),
    Model(
        "transformers TimesFmModel",
        make(
            "TimesFmModel",
            "TimesFmConfig",
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            head_dim=16,
            patch_length=8,
            context_length=32,
            horizon_length=8,
        ),
        lambda: {
            "past_values": torch.randn(2, 32),
            "past_values_padding": torch.zeros(2, 32),
            "freq": torch.zeros(2, 1, dtype=torch.long),
        },
        {"TimesFmRMSNorm": 2, "LayerNorm": 2, "sum()": 1},
        "1 + 1 in each of 2 layers; the series is scaled by what was observed of it",
    ),
    Model(
        "transformers PatchTSTModel",
        make(
            "PatchTSTModel",
            "PatchTSTConfig",
            num_input_channels=3,
            context_length=32,
            patch_length=8,
            patch_stride=8,
            d_model=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            ffn_dim=32,
        ),
        lambda: {"past_values": torch.randn(2, 32, 3)},
        {"PatchTSTStdScaler": 1, "BatchNorm1d": 4},
        "2 in each of 2 layers; the series over time",
    ),
]
