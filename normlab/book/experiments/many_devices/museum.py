"""Threads about norms on several devices, each with what finds its mistake, or why nothing does."""

from __future__ import annotations

from dataclasses import dataclass

from normlab.parallel.division import Divided


@dataclass(frozen=True)
class Thread:
    """A thread in which somebody met, proposed or asked about a mistake."""

    project: str  #: owner and name at github.com
    number: int  #: of the issue or pull request
    #: norm, what is divided, and mistake of a :class:`ParallelMutant`, or None
    mutant: tuple[str, Divided, str] | None = None
    rule: str = ""  #: of `normlab.doctor`, or ""
    reason: str = ""  #: why neither can see it, or ""


THREADS = (
    Thread(
        "NVIDIA/Megatron-LM", 1446, ("layer_norm", "tokens", "partial"), rule="partial_gradients"
    ),
    Thread("NVIDIA/Megatron-LM", 7452, ("rms_norm", "heads", "partial"), rule="partial_gradients"),
    Thread("NVIDIA-NeMo/RL", 3716, ("rms_norm", "heads", "partial"), rule="partial_gradients"),
    Thread(
        "NVIDIA-NeMo/RL",
        3788,
        reason="the gradients are right; their norm, computed after them, counts copies",
    ),
    Thread(
        "ROCm/TransformerEngine",
        715,
        reason="about linear layers; their gradients are right and counted more than once",
    ),
    Thread(
        "EleutherAI/gpt-neox", 1257, ("layer_norm", "tokens", "partial"), rule="partial_gradients"
    ),
    Thread("EleutherAI/gpt-neox", 1259, ("layer_norm", "tokens", "averaged")),
    Thread(
        "pytorch/torchtitan",
        1421,
        reason="torch raises by itself where a fused operation has no rule for divided tensors",
    ),
    Thread(
        "pytorch/pytorch",
        158716,
        reason="the repair of that; a collective more than needed changes no number",
    ),
    Thread("pytorch/pytorch", 190626, ("rms_norm", "tokens", "rounded_sum")),
    Thread(
        "pytorch/torchtitan",
        2217,
        reason="asks where a reduction happens; no wrong number is reported",
    ),
    Thread(
        "linkedin/Liger-Kernel",
        982,
        reason="gathers the whole input, which costs bytes and changes no number",
    ),
    Thread(
        "linkedin/Liger-Kernel",
        1076,
        reason="proposes not to gather where tokens are divided, which changes no number",
    ),
    Thread("vllm-project/vllm", 39298, ("rms_norm", "all heads", "local_statistics")),
    Thread("vllm-project/vllm", 38191, ("rms_norm", "all heads", "weight_misplaced")),
    Thread("sgl-project/sglang", 20967, ("rms_norm", "all heads", "weight_misplaced")),
    Thread("Dao-AILab/flash-attention", 1244, ("rms_norm", "features", "identity_backward")),
)
