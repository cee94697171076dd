"""Where does weight decay take the factors of norms, stored as w and as 1 + w?"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor, nn

from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.today.copying import CopyTask, train_to_copy
from normlab.layers import RMSNorm, ZeroCenteredRMSNorm

Stored = Literal["rms_norm", "zero_centered"]


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


@experiment(norm=("rms_norm", "zero_centered"), decay=(0.0, 0.1, 1.0), seed=range(5))
def gain_decay(
    norm: Stored, decay: NonNegativeFloat, seed: Seed, *, steps: Steps = 400
) -> dict[str, float]:
    """Train a pre-norm decoder of two layers to repeat a random text, by AdamW at a rate of 0.01.

    Args:
        norm: "rms_norm" stores the factor, "zero_centered" its distance from one.
        decay: weight decay of the weights of norms; all else does not decay.

    Returns:
        loss: mean over the last 20 updates, in nats for a symbol; guessing has log(16).
        factor: mean magnitude of what the norms multiply by, at the end.
    """
    task = CopyTask()
    model = task.make_decoder(seed, norm=norm)
    of_norms, others = split_parameters(model)
    groups = [{"params": of_norms, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.98))
    loss = train_to_copy(model, optimizer, task, steps, seed=seed)
    return {"loss": loss, "factor": rounded(read_factors(model).abs().mean().item())}
