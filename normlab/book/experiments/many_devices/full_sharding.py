"""What fully sharded data parallel training in bfloat16 does to a norm; runs on every process."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

NORMS: dict[str, Any] = {
    "layer_norm": nn.LayerNorm,
    "rms_norm": nn.RMSNorm,
    "batch_norm": nn.BatchNorm1d,
}


class Computed(NamedTuple):
    """How a norm between two linear layers was computed."""

    input: str  #: dtype of what it normalized, or "" where it raised
    weight: str  #: dtype of the weight that it used
    gradient: str  #: dtype of the gradient of its weight, of which each process has a part
    rounding: float  #: largest change of a weight by that dtype
    mean: float | None  #: running mean of the first channel, of this process; None without one
    error: str  #: what it raised, or ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def train_in_bfloat16(norm: str, own_unit: bool) -> Computed:
    """One step of a small network whose parameters are float32 and are gathered in bfloat16.

    With `own_unit` the norm is sharded by itself, and gathered in float32.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    layer = NORMS[norm](8)
    with torch.no_grad():
        layer.weight.add_(0.1 * torch.randn(8))
    model = nn.Sequential(nn.Linear(8, 8), layer, nn.Linear(8, 8))
    weight = layer.weight.detach().clone()
    seen: dict[str, Any] = {}

    def watch(module: Any, args: tuple[Tensor, ...]) -> None:
        seen["input"], seen["weight"] = args[0].dtype, module.weight.detach().clone()

    if own_unit:
        whole = MixedPrecisionPolicy(param_dtype=torch.float32, output_dtype=torch.bfloat16)
        fully_shard(layer, mesh=mesh, mp_policy=whole)
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    layer.register_forward_pre_hook(watch)
    g = torch.Generator().manual_seed(dist.get_rank())
    x = torch.randn(16, 8, generator=g) + dist.get_rank()
    with warnings.catch_warnings(action="ignore"):
        try:
            model(x).float().square().sum().backward()
        except RuntimeError as error:
            return Computed("", "", "", 0.0, None, str(error).partition("\n")[0])
    gradient = layer.weight.grad
    assert isinstance(gradient, DTensor)
    mean = getattr(layer, "running_mean", None)
    return Computed(
        _name(seen["input"]),
        _name(seen["weight"].dtype),
        _name(gradient.dtype),
        float((seen["weight"].float() - weight).abs().max()),
        None if mean is None else float(mean[0]),
        "",
    )
