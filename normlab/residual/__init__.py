"""Residual blocks: where the norms stand, and what scales the branch.

A block holds the branch F as `sublayer`, and its norms. Called with x (*, D), it returns the same
shape; further arguments go to the branch. A branch that does not return a tensor raises a
TypeError, and one that changes the shape of x a ValueError.
"""

from normlab.residual.blocks import DeepNorm, PostNorm, PreNorm
from normlab.residual.constants import DeepNormConstants, deep_norm_constants
from normlab.residual.initialization import deep_norm_init_
from normlab.residual.placements import (
    Keel,
    OutputNorm,
    ResiDual,
    SandwichNorm,
    ScaledPreNorm,
    SubNorm,
    hybrid_norm,
    mix_norm,
)
from normlab.residual.scales import AdaLNZero, LayerScale, ReZero
from normlab.residual.tracing import Step, trace_block, write_formula

__all__ = [
    "AdaLNZero",
    "DeepNorm",
    "DeepNormConstants",
    "Keel",
    "LayerScale",
    "OutputNorm",
    "PostNorm",
    "PreNorm",
    "ReZero",
    "ResiDual",
    "SandwichNorm",
    "ScaledPreNorm",
    "Step",
    "SubNorm",
    "deep_norm_constants",
    "deep_norm_init_",
    "hybrid_norm",
    "mix_norm",
    "trace_block",
    "write_formula",
]
