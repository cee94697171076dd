"""Models of x-transformers: one decoder with several norms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from zoo_table import Model, attribute, tokens


def _build(**options: Any) -> nn.Module:
    layers = attribute("x_transformers", "Decoder")(
        dim=64, depth=2, heads=2, attn_dim_head=16, **options
    )
    return attribute("x_transformers", "TransformerWrapper")(
        num_tokens=100, max_seq_len=32, attn_layers=layers
    )


def make(**options: Any) -> Callable[[], nn.Module]:
    """Makes a decoder of two layers."""
    return partial(_build, **options)


EACH = "1 in front of each of 2 × 2 sublayers, 1 at the end"
MODELS = [
    Model("x_transformers Decoder", make(), tokens, {"LayerNorm": 5}, EACH),
    Model(
        "x_transformers Decoder (use_rmsnorm)",
        make(use_rmsnorm=True),
        tokens,
        {"RMSNorm": 5},
        EACH,
    ),
    Model(
        "x_transformers Decoder (use_scalenorm)",
        make(use_scalenorm=True),
        tokens,
        {"ScaleNorm": 5},
        EACH,
    ),
    Model(
        "x_transformers Decoder (use_dynamic_tanh)",
        make(use_dynamic_tanh=True),
        tokens,
        {"DynamicTanh": 5},
        EACH,
    ),
    Model(
        "x_transformers Decoder (attn_qk_norm)",
        make(attn_qk_norm=True),
        tokens,
        {"LayerNorm": 5, "normalize()": 2},
        f"{EACH}; queries and keys",
    ),
    Model(
        "x_transformers Decoder (sandwich_norm)",
        make(sandwich_norm=True),
        tokens,
        {"LayerNorm": 9},
        "1 in front of and 1 behind each of 2 × 2 sublayers, 1 at the end",
    ),
    Model(
        "x_transformers Decoder (attn_qk_rmsnorm)",
        make(attn_qk_rmsnorm=True),
        tokens,
        {"LayerNorm": 5, "SimpleRMSNorm": 4},
        f"{EACH}; queries and keys, with a weight for each head",
        findings={"half_statistics": 4},
        seen_in={
            "half_statistics": ("x_transformers/x_transformers.py", "class SimpleRMSNorm(Module)")
        },
    ),
]
