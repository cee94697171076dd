"""Do the first updates change a wide decoder's activations more than a narrow one's?"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.networks.transformer import MeasuredAttention, Transformer
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.today.copying import CopyTask, copy_loss
from normlab.book.experiments.training import fit

Scaling = Literal["standard", "muP"]
FIRST_WIDTH = 64  # at which the two scalings are the same network
HEADS = 2  # at every width, so that the heads grow


def _divides(width: int) -> None:
    if width % HEADS:
        raise ValueError(f"width: got {width}; expected a multiple of {HEADS}, the heads")


def parameter_groups(model: Transformer, *, lr: float, factor: float) -> list[dict[str, Any]]:
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


def scale_widths_(model: Transformer, factor: float) -> None:
    """muP's other two changes, in place: 1 / d in attention, and a smaller output matrix.

    Args:
        factor: width over the first width.
    """
    with torch.no_grad():
        model.head.weight.div_(math.sqrt(factor))
    for module in model.modules():
        if isinstance(module, MeasuredAttention):
            module.q_proj.register_forward_hook(lambda m, x, y: y / math.sqrt(factor))


@torch.no_grad()
def read_activations(model: Transformer, tokens: Tensor) -> dict[str, Tensor]:
    """The stream behind the last block, and the output."""
    found: dict[str, Tensor] = {}
    hook = model.norm.register_forward_pre_hook(lambda m, x: found.update(stream=x[0]))
    found["output"] = model(tokens)
    hook.remove()
    return found


@experiment(scaling=("standard", "muP"), width=(64, 256, 1024), seed=range(5), condition=_divides)
def coordinate_check(
    scaling: Scaling, width: PositiveInt, seed: Seed, *, steps: Steps = 5
) -> dict[str, float]:
    """Take a few steps of the copy task with a pre-norm decoder, by Adam.

    Args:
        scaling: "standard" has the rate 0.003 for all, attention over the root of the head's size
            and one rule for all initial matrices; "muP" divides the rate of each matrix by the
            width, attention by the size, and starts the output matrix smaller.

    Returns:
        stream: root mean square of the change of the stream behind the last block.
        output: root mean square of the change of the output.
    """
    task = CopyTask(width=width, heads=HEADS, length=8, batch_size=8)
    factor = width / FIRST_WIDTH
    model = task.make_decoder(seed)
    if scaling == "muP":
        scale_widths_(model, factor)
    groups = parameter_groups(model, lr=3e-3, factor=factor if scaling == "muP" else 1.0)
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.98))
    batches = task.batches(seed)
    tokens, _ = next(batches)
    before = read_activations(model, tokens)
    fit(model, optimizer, batches, steps, loss_of=partial(copy_loss, length=task.length))
    after = read_activations(model, tokens)
    moved = {n: (after[n] - before[n]).square().mean().sqrt().item() for n in before}
    return {name: rounded(value) for name, value in moved.items()}
