"""Where does weight decay take the factors of norms, stored as w and as 1 + w?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normlab.experiments.networks.decoder import make_decoder
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Count, Index, NotNegative, Positive, Several, check_divides
from normlab.experiments.sweep import Sweep
from normlab.experiments.today.copying import copy_batches, copy_loss
from normlab.layers import RMSNorm, ZeroCenteredRMSNorm

Stored = Literal["rms_norm", "zero_centered"]


@dataclass(frozen=True)
class Config:
    """Pre-norm decoders repeat a random text; only the weights of norms decay."""

    #: "rms_norm" stores the factor, "zero_centered" its distance from one
    norms: tuple[Stored, ...] = ("rms_norm", "zero_centered")
    #: of AdamW, for the weights of norms; all else does not decay
    decays: tuple[NotNegative, ...] = (0.0, 0.1, 1.0)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and texts
    lr: Positive = 1e-2  #: of AdamW, constant from the first step on
    layers: Count = 2  #: of the decoder
    width: Count = 32  #: D
    heads: Count = 2  #: of each attention
    symbols: Several = 16  #: number of different tokens
    length: Several = 16  #: of the text that is repeated
    batch_size: Count = 32  #: N
    steps: Count = 400  #: updates

    def __post_init__(self) -> None:
        check_divides(self, "heads", "width")


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
    model = make_decoder(
        norm=norm,
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        vocabulary=config.symbols,
        length=2 * config.length,
        seed=seed,
    )
    of_norms, others = split_parameters(model)
    groups = [{"params": of_norms, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.98))
    batches = copy_batches(
        symbols=config.symbols, length=config.length, batch_size=config.batch_size, seed=1000 + seed
    )
    losses = []
    for _ in range(config.steps):
        loss = copy_loss(model, next(batches), config.length)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    last = sum(losses[-20:]) / len(losses[-20:])
    return {
        "loss": rounded(min(last, math.log(config.symbols))),
        "factor": rounded(read_factors(model).abs().mean().item()),
    }


run = Sweep(run_one, norm="norms", decay="decays", seed="seeds")
