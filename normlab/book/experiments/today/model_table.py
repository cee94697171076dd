"""Which norms do language models have, and where? Read from their classes by running them small."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normlab import identify
from normlab.book.experiments.sweep import experiment

# Configuration by model type; what its small version needs besides the sizes that all share.
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "smollm3": {},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3": {},
    "qwen3_5_text": {"full_attention_interval": 2},
    "apertus": {},
    "minimax_m2": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo2": {},
    "olmo3": {},
    "exaone4": {},
    "glm4": {},
    "gemma2": {},
    "gemma3_text": {},
    "gemma4_text": {
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 64,
        "global_head_dim": 16,
    },
    "llama4_text": {"num_local_experts": 2, "intermediate_size_mlp": 96},
    "cohere": {},
    "nemotron": {},
    "nanochat": {},
    "deepseek_v3": {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "head_dim": 8,
        "num_key_value_heads": 4,
        "kv_lora_rank": 24,
        "q_lora_rank": 40,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    },
}
_SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class Call(NamedTuple):
    """One call of a module: its name within the layer, what it read and what it gave back."""

    name: str
    module: nn.Module
    input: Tensor
    output: Tensor


LAYERS = 4  # of each network


def _is_known(model: str) -> None:
    if model not in MODELS:
        raise ValueError(f"model: got {model!r}; expected one of {', '.join(MODELS)}")


def make_model(model: str, layers: int = LAYERS, seed: int = 0) -> nn.Module:
    """Build a small network of a model type, with random weights of its norms, too.

    Raises:
        ValueError: there is no such key.
        ModuleNotFoundError: transformers is not installed; `pip install 'normlab[models]'`.
    """
    _is_known(model)
    transformers = importlib.import_module("transformers")
    sizes = _SIZES | {"num_hidden_layers": layers} | MODELS[model]
    config = transformers.AutoConfig.for_model(model, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built: nn.Module = transformers.AutoModelForCausalLM.from_config(config).eval()
        for p in built.parameters():
            if p.dim() == 1:
                nn.init.uniform_(p, 0.1, 0.3)
    return built


def find_layers(model: nn.Module, layers: int) -> nn.ModuleList:
    """The list of a model's decoder layers."""
    lists = (m for m in model.modules() if isinstance(m, nn.ModuleList))
    return next(m for m in lists if len(m) == layers)


@contextmanager
def record_calls(layer: nn.Module) -> Iterator[list[Call]]:
    """Note each call of a module inside a layer that takes and gives one tensor first."""
    calls: list[Call] = []

    def note(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            first = args[0] if args else kwargs.get("hidden_states")
            given = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor) and isinstance(given, Tensor):
                calls.append(Call(name, module, first.detach().clone(), given.detach().clone()))

        return hook

    handles = [
        module.register_forward_hook(note(name), with_kwargs=True)
        for name, module in layer.named_modules()
        if name
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _is_norm(call: Call) -> bool:
    return "norm" in type(call.module).__name__.lower()


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same numbers, in whatever shape."""
    return a.numel() == b.numel() and torch.equal(a.flatten().sort()[0], b.flatten().sort()[0])


def find_placement(calls: list[Call]) -> str:
    """Where the norms of a layer stand, told by what they read and who reads them.

    Returns:
        "pre", "sandwich", "output", or "post" where no norm is next to a branch; with
        ", parallel" where both branches read one norm.
    """
    norms = [c for c in calls if "." not in c.name and _is_norm(c)]
    branches = [c for c in calls if "." not in c.name and not _is_norm(c) and c.output.dim() == 3]
    branches = [b for b in branches if any(part in b.name for part in ("attn", "mlp", "forward"))]
    before = [any(_same(n.output, b.input) for n in norms) for b in branches]
    behind = [any(_same(n.input, b.output) for n in norms) for b in branches]
    readers = [sum(_same(n.output, b.input) for b in branches) for n in norms]
    kinds = {(True, False): "pre", (True, True): "sandwich", (False, True): "output"}
    places = {kinds.get(place, "post") for place in zip(before, behind, strict=True)}
    placement = places.pop() if len(places) == 1 else "mixed"
    return placement + (", parallel" if max(readers, default=0) > 1 else "")


def find_qk_norm(calls: list[Call], heads: int) -> str:
    """What of queries and keys is normalized: "per head", "all heads", "latent" or "none"."""
    inside = [c for c in calls if "." in c.name and _is_norm(c)]
    of_query = [
        c for c in inside if c.name.rpartition(".")[2] in ("q_norm", "qk_norm", "query_norm")
    ]
    if not of_query:
        return "latent" if any("_a_layernorm" in c.name for c in inside) else "none"
    call = of_query[0]
    per_head = call.input.dim() == 4 or call.input.shape[-1] < heads * 16
    projected = [c for c in calls if c.name.rpartition(".")[2] in ("q_proj", "query")]
    # a projection may hold a gate besides the queries
    rotated = projected and not torch.isin(call.input, projected[0].output).all()
    gain = "" if any(True for _ in call.module.parameters()) else ", no weight"
    return (
        ("per head" if per_head else "all heads") + gain + (", after rotation" if rotated else "")
    )


def marks(row: Any) -> tuple[str, ...]:
    """What a picture of the table shows of one outcome.

    Returns:
        for a norm before the branches, one behind them, one of queries and keys, and a weight
        stored as 1 + w: "dot" where it is there, "ring" where it has no weight, else "".
    """
    place = row.placement.split(",")[0]
    block = "ring" if row.weight == "none" else "dot"
    return (
        block if place in ("pre", "sandwich") else "",
        block if place in ("output", "sandwich") else "",
        ("ring" if "no weight" in row.qk_norm else "dot")
        if row.qk_norm not in ("none", "latent")
        else "",
        "dot" if row.weight == "1 + w" else "",
    )


@experiment(model=MODELS, condition=_is_known)
def model_table(model: str) -> dict[str, Any]:
    """Run a small network of a class of the installed transformers and look at its layers.

    Args:
        model: its type, a key of :data:`MODELS`.

    Returns:
        norm: what the norms of the blocks compute, by :func:`normlab.identify`.
        weight: "w", "1 + w" or "none".
        placement: see :func:`find_placement`.
        qk_norm: see :func:`find_qk_norm`; that of the first layer that has one.
        eps: of the norms of the blocks, the default of the configuration.
        version: of transformers.
    """
    network = make_model(model)
    found = []
    with torch.no_grad():
        for layer in find_layers(network, LAYERS):
            with record_calls(layer) as calls:
                network(torch.arange(2, 14).view(2, 6))
            found.append(calls)
    calls = found[-1]
    block_norm = next(c for c in calls if "." not in c.name and _is_norm(c))
    report = identify(block_norm.module, shape=tuple(block_norm.input.shape))
    weight = "none" if not report.affine else ("1 + w" if report.weight_offset else "w")
    qk = [find_qk_norm(c, _SIZES["num_attention_heads"]) for c in found]
    return {
        "norm": report.family,
        "weight": weight,
        "placement": find_placement(calls),
        "qk_norm": next((kind for kind in qk if kind != "none"), "none"),
        "eps": float(f"{report.eps:.3g}") if report.eps is not None else None,
        "version": importlib.import_module("transformers").__version__,
    }
