"""Residual blocks: where the norm stands, and what DeepNorm adds to it."""

from normlab.residual.blocks import DeepNorm, PostNorm, PreNorm
from normlab.residual.constants import DeepNormConstants, deep_norm_constants
from normlab.residual.initialization import deep_norm_init_

__all__ = [
    "DeepNorm",
    "DeepNormConstants",
    "PostNorm",
    "PreNorm",
    "deep_norm_constants",
    "deep_norm_init_",
]
