"""Do the first updates change a wide decoder's activations more than a narrow one's?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.decoder import CausalAttention, Decoder
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Count, Index, Positive, Several
from normlab.experiments.today.copying import copy_loss, make_copier, make_texts
from normlab.experiments.training import minimize

Scaling = Literal["standard", "muP"]


@dataclass(frozen=True)
class Config:
    """Pre-norm decoders of several widths take a few steps of the copy task."""

    #: "standard" has one rate for all, attention over the root of the head's size and one rule for
    #: all initial matrices; "muP" divides the rate of each matrix by the width, attention by the
    #: size, and starts the output matrix smaller. The two are the same network at the first width.
    scalings: tuple[Scaling, ...] = ("standard", "muP")
    widths: tuple[Count, ...] = (64, 256, 1024)  #: D
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and texts
    lr: Positive = 3e-3  #: of Adam, at the first width
    heads: Count = 2  #: of each attention, at every width, so that the heads grow
    layers: Count = 2  #: of the decoder
    symbols: Several = 16  #: number of different tokens
    length: Several = 8  #: of the text that is repeated
    batch_size: Count = 8  #: N
    steps: Count = 5  #: updates

    def __post_init__(self) -> None:
        for width in self.widths:
            if width % self.heads:
                raise ValueError(f"heads: got {self.heads}; expected a divisor of width {width}")


def parameter_groups(model: Decoder, *, lr: float, factor: float) -> list[dict[str, Any]]:
    """muP's rates for Adam: matrices learn at `lr / factor`, all others at `lr`.

    Weights of norms, biases and embeddings have one axis that grows with the width or none, so
    their rate does not depend on it.

    Args:
        factor: width over the first width.

    Source:
        yang2022tensor, Table 3.
    """
    of_linear = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    known = {id(p) for p in of_linear}
    rest = [p for p in model.parameters() if id(p) not in known]
    return [{"params": of_linear, "lr": lr / factor}, {"params": rest, "lr": lr}]


def scale_widths_(model: Decoder, factor: float) -> None:
    """muP's other two changes, in place: 1 / d in attention, and a smaller output matrix.

    Args:
        factor: width over the first width.
    """
    with torch.no_grad():
        model.head.weight.div_(math.sqrt(factor))
    for module in model.modules():
        if isinstance(module, CausalAttention):
            module.q_proj.register_forward_hook(lambda m, x, y: y / math.sqrt(factor))


@torch.no_grad()
def read_activations(model: Decoder, tokens: Tensor) -> dict[str, Tensor]:
    """The stream behind the last block, and the output."""
    found: dict[str, Tensor] = {}
    hook = model.norm.register_forward_pre_hook(lambda m, x: found.update(stream=x[0]))
    found["output"] = model(tokens)
    hook.remove()
    return found


def run_one(config: Config, scaling: Scaling, width: int, seed: int) -> dict[str, Any]:
    """Take a few steps with one network.

    Measures:
        stream: root mean square of the change of the stream behind the last block.
        output: root mean square of the change of the output.
    """
    factor = width / config.widths[0]
    model = make_copier(config, width, seed)
    if scaling == "muP":
        scale_widths_(model, factor)
    groups = parameter_groups(model, lr=config.lr, factor=factor if scaling == "muP" else 1.0)
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.98))
    batches = make_texts(config, seed)
    tokens, _ = next(batches)
    before = read_activations(model, tokens)
    minimize(
        lambda batch: copy_loss(model, batch, config.length),
        batches,
        optimizer,
        steps=config.steps,
    )
    after = read_activations(model, tokens)
    moved = {n: (after[n] - before[n]).square().mean().sqrt().item() for n in before}
    return {name: rounded(value) for name, value in moved.items()}


run = Sweep(run_one, scaling="scalings", width="widths", seed="seeds")
