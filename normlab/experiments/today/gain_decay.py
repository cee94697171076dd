"""Where does weight decay take the factors of norms, stored as w and as 1 + w?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Index, NotNegative, Positive
from normlab.experiments.today.copying import CopyTask, make_copier, train_to_copy
from normlab.layers import RMSNorm, ZeroCenteredRMSNorm

Stored = Literal["rms_norm", "zero_centered"]


@dataclass(frozen=True)
class Config(CopyTask):
    """Pre-norm decoders repeat a random text; only the weights of norms decay."""

    #: "rms_norm" stores the factor, "zero_centered" its distance from one
    norms: tuple[Stored, ...] = ("rms_norm", "zero_centered")
    #: of AdamW, for the weights of norms; all else does not decay
    decays: tuple[NotNegative, ...] = (0.0, 0.1, 1.0)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and texts
    lr: Positive = 1e-2  #: of AdamW, constant from the first step on


def split_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The weights of norms, and all other parameters."""
    norms = [m for m in model.modules() if isinstance(m, RMSNorm | ZeroCenteredRMSNorm)]
    of_norms = [p for norm in norms for p in norm.parameters()]
    known = {id(p) for p in of_norms}
    return of_norms, [p for p in model.parameters() if id(p) not in known]


def read_factors(model: nn.Module) -> Tensor:
    """What the norms of a network multiply by, of all features and norms."""
    factors = []
    for module in model.modules():
        if isinstance(module, RMSNorm | ZeroCenteredRMSNorm) and module.weight is not None:
            offset = 1.0 if isinstance(module, ZeroCenteredRMSNorm) else 0.0
            factors.append(offset + module.weight.detach())
    return torch.cat(factors)


def run_one(config: Config, norm: Stored, decay: float, seed: int) -> dict[str, Any]:
    """Train one decoder.

    Measures:
        loss: mean over the last 20 updates, in nats for a symbol; guessing has log(symbols).
        factor: mean magnitude of what the norms multiply by, at the end.
    """
    model = make_copier(config, config.width, seed, norm=norm)
    of_norms, others = split_parameters(model)
    groups = [{"params": of_norms, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.98))
    loss = train_to_copy(model, optimizer, config, seed=seed)
    return {"loss": loss, "factor": rounded(read_factors(model).abs().mean().item())}


run = Sweep(run_one, norm="norms", decay="decays", seed="seeds")
