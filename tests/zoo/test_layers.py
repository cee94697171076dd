"""Norm classes of libraries: each is what its source says, and none is called wrong."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from zoo_table import attribute

from normlab.checks import check_layer

pytestmark = pytest.mark.filterwarnings("ignore")
if importlib.util.find_spec("timm") is None:
    pytest.skip("the zoo is not installed: pip install 'normlab[zoo]'", allow_module_level=True)

RMS = {"like": "rms_norm", "eps": 1e-6}
LAYER = {"like": "layer_norm"}
SHIFTED = {"weight_offset": 1}
MAPS = {"shape": (2, 8, 5, 6)}


def by_length(count: int) -> dict[str, Any]:
    """Of a norm that divides by a length (1e-12 at least) and multiplies by the root of `count`."""
    return {"like": "rms_norm", "eps": 1e-24 / count, "eps_placement": "clamp"}


def transformers(model: str, name: str) -> str:
    return f"transformers.models.{model}.modeling_{model}:{name}"


# class: arguments of its constructor, and of the check
RIGHT: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]] = {
    transformers("llama", "LlamaRMSNorm"): ((16,), {}, RMS),
    transformers("mistral", "MistralRMSNorm"): ((16,), {}, RMS),
    transformers("mixtral", "MixtralRMSNorm"): ((16,), {}, RMS | {"eps": 1e-6}),
    transformers("qwen2", "Qwen2RMSNorm"): ((16,), {}, RMS),
    transformers("qwen3", "Qwen3RMSNorm"): ((16,), {}, RMS),
    transformers("phi3", "Phi3RMSNorm"): ((16,), {}, RMS),
    transformers("olmo2", "Olmo2RMSNorm"): ((16,), {}, RMS),
    transformers("gemma", "GemmaRMSNorm"): ((16,), {}, RMS | SHIFTED),
    transformers("gemma3", "Gemma3RMSNorm"): ((16,), {}, RMS | SHIFTED),
    transformers("qwen3_next", "Qwen3NextRMSNorm"): ((16,), {}, RMS | SHIFTED),
    transformers("t5", "T5LayerNorm"): ((16,), {}, RMS),
    transformers("umt5", "UMT5LayerNorm"): ((16,), {}, RMS),
    transformers("longt5", "LongT5LayerNorm"): ((16,), {}, RMS),
    transformers("mamba", "MambaRMSNorm"): ((16,), {}, RMS),
    transformers("mamba2", "Mamba2RMSNorm"): ((16,), {}, RMS),
    transformers("deepseek_v3", "DeepseekV3RMSNorm"): ((16,), {}, RMS),
    transformers("granite", "GraniteRMSNorm"): ((16,), {}, RMS),
    transformers("glm4", "Glm4RMSNorm"): ((16,), {}, RMS),
    transformers("gpt_oss", "GptOssRMSNorm"): ((16,), {}, RMS),
    transformers("bitnet", "BitNetRMSNorm"): ((16,), {}, RMS),
    transformers("jamba", "JambaRMSNorm"): ((16,), {}, RMS),
    transformers("llama4", "Llama4TextL2Norm"): ((), {}, RMS),
    transformers("olmo", "OlmoLayerNorm"): ((16,), {}, LAYER),
    transformers("cohere", "CohereLayerNorm"): ((16,), {}, LAYER),
    transformers("nemotron", "NemotronLayerNorm1P"): ((16,), {}, LAYER | SHIFTED),
    transformers("convnextv2", "ConvNextV2LayerNorm"): (
        (8,),
        {"data_format": "channels_first"},
        LAYER | MAPS | {"axis": 1, "eps": 1e-6},
    ),
    transformers("sam", "SamLayerNorm"): (
        (8,),
        {"data_format": "channels_first"},
        LAYER | MAPS | {"axis": 1, "eps": 1e-6},
    ),
    "diffusers.models.normalization:RMSNorm": ((16,), {"eps": 1e-6}, RMS),
    "diffusers.models.normalization:FP32LayerNorm": ((16,), {}, LAYER),
    "diffusers.models.autoencoders.autoencoder_kl_wan:WanRMS_norm": (
        (8,),
        {"images": False},
        by_length(8) | {"shape": (2, 8, 3, 5, 6), "axis": 1, "weight_shape": (8, 1, 1, 1)},
    ),
    "timm.layers:LayerNorm": ((16,), {}, LAYER | {"eps": 1e-6}),
    "timm.layers:LayerNorm2d": ((8,), {}, LAYER | MAPS | {"axis": 1, "eps": 1e-6}),
    "timm.layers:RmsNorm": ((16,), {}, RMS),
    "timm.layers:GroupNorm1": ((8,), {}, MAPS | {"like": "group_norm", "num_groups": 1}),
    "timm.layers:GroupNorm": (
        (8,),
        {"num_groups": 2},
        MAPS | {"like": "group_norm", "num_groups": 2},
    ),
    "timm.layers:BatchNormAct2d": ((8,), {"apply_act": False}, MAPS | {"like": "batch_norm"}),
    "timm.layers:GroupNormAct": (
        (8,),
        {"num_groups": 2, "apply_act": False},
        MAPS | {"like": "group_norm", "num_groups": 2},
    ),
    "timm.layers:LayerNormAct2d": (
        (8,),
        {"apply_act": False},
        LAYER | MAPS | {"axis": 1},
    ),
    "torchvision.models.convnext:LayerNorm2d": ((8,), {}, LAYER | MAPS | {"axis": 1}),
    "x_transformers.x_transformers:LayerNorm": ((16,), {}, LAYER),
    "x_transformers.x_transformers:RMSNorm": ((16,), {}, by_length(16)),
    "x_transformers.x_transformers:SimpleRMSNorm": ((16,), {}, by_length(16)),
    "vit_pytorch.simple_vit_with_qk_norm:RMSNorm": (
        (2, 8),
        {},
        by_length(8) | {"shape": (3, 2, 5, 8), "weight_shape": (2, 1, 8)},
    ),
    "denoising_diffusion_pytorch.denoising_diffusion_pytorch:RMSNorm": (
        (8,),
        {},
        by_length(8) | MAPS | {"axis": 1, "weight_shape": (8, 1, 1)},
    ),
    "open_clip.transformer:LayerNorm": ((16,), {}, LAYER),
    "open_clip.transformer:LayerNormFp32": ((16,), {}, LAYER),
}

# They divide by at least 1e-12, which is 0 in float16: a row of zeros is NaN there.
NAN_IN_FLOAT16 = {
    "x_transformers.x_transformers:RMSNorm",
    "x_transformers.x_transformers:SimpleRMSNorm",
    "vit_pytorch.simple_vit_with_qk_norm:RMSNorm",
    "denoising_diffusion_pytorch.denoising_diffusion_pytorch:RMSNorm",
}


def test_the_table_has_more_than_forty_classes():
    assert len(RIGHT) > 40


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_layer_of_a_library_passes(name):
    module, _, cls = name.partition(":")
    args, named, options = RIGHT[name]
    torch.manual_seed(0)
    layer = attribute(module, cls)(*args, **named)
    report = check_layer(layer, **({"shape": (4, 16)} | options))
    if name in NAN_IN_FLOAT16:
        assert layer(torch.zeros(options.get("shape", (4, 16))).half()).isnan().any()
        assert {failure.mistake for failure in report.failures} == {"eps_underflows"}
    else:
        assert report.passed, str(report)


def test_statistics_in_half_precision_are_said_of_a_library_too():
    """`rms_norm2d` squares and averages in the dtype of its input, where RmsNorm casts up."""
    layer = attribute("timm.layers", "RmsNorm2d")(8)
    report = check_layer(layer, **(RMS | MAPS | {"axis": 1}))
    assert {failure.mistake for failure in report.failures} == {"half_precision_statistics"}
    float32 = check_layer(layer, dtypes=["float32"], **(RMS | MAPS | {"axis": 1}))
    assert float32.passed, str(float32)
