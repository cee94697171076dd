"""Does QK-norm widen the range of rates in a language model of ten million parameters, too?"""

from __future__ import annotations

import math
import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils import clip_grad_norm_

from normlab.book.experiments.checkpoints import Checkpoint
from normlab.book.experiments.data.library import PINNED, Library, load_library
from normlab.book.experiments.data.sequences import Text, text_batches
from normlab.book.experiments.networks.decoder import make_decoder, take_largest_logit
from normlab.book.experiments.networks.transformer import Transformer
from normlab.book.experiments.processor import processor_name
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import check_warmup, token_loss
from normlab.schedules import linear_then_cosine

QK = Literal["none", "qk_norm"]
Precision = Literal["float32", "bfloat16"]
# what does not change the numbers of a run, or is an axis
_NOT_CHECKED = ("seed", "lr", "group", "checkpoints", "checkpoint_minutes", "library")


def _fit(width: int, heads: int, steps: int, points: int, warmup: int) -> None:
    if width % heads:
        raise ValueError(f"heads: got {heads}; expected a divisor of width {width}")
    if steps % points:
        raise ValueError(f"points: got {points}; expected a divisor of steps {steps}")
    check_warmup(warmup, steps)


class Bfloat16Linear(nn.Module):
    """A linear layer that multiplies in bfloat16 and keeps its parameters as they are."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        """Multiply in bfloat16; give what came in."""
        half = torch.bfloat16
        bias = None if self.bias is None else self.bias.to(half)
        return linear(x.to(half), self.weight.to(half), bias).to(x.dtype)


def multiply_in_bfloat16_(model: nn.Module) -> None:
    """Put a :class:`Bfloat16Linear` with the same weight into the place of every linear layer."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Bfloat16Linear(child.weight, child.bias))


def make_model(config: Any) -> Transformer:
    """The decoder at its first weights; one seed gives both groups the same."""
    model = make_decoder(
        qk_norm=config.group == "qk_norm",
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        vocabulary=256,
        length=config.length,
        seed=config.seed,
    )
    if config.precision == "bfloat16":
        multiply_in_bfloat16_(model)
    return model


def _windows(tokens: Tensor, length: int, count: int, seed: int) -> Any:
    return text_batches(Text(tokens, 256, math.nan), length=length, batch_size=count, seed=seed)


class Training:
    """One run: what it has reached, and how to take it further."""

    def __init__(self, config: Any, library: Library) -> None:
        self.config = config
        self.device = torch.device(config.device)
        self.model = make_model(config).to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.lr, betas=(0.9, 0.95), fused=True
        )
        self.schedule = linear_then_cosine(
            self.optimizer, warmup_steps=config.warmup, total_steps=config.steps
        )
        self.batches = _windows(library.train, config.length, config.batch_size, config.seed)
        # the same windows for all runs
        self.held_out = self._move(
            next(_windows(library.held_out, config.length, config.held_out, 0))
        )
        settings = {k: v for k, v in vars(config).items() if k not in _NOT_CHECKED}
        name = f"{config.group}-{config.lr:g}-{config.seed}.pt"
        self.checkpoint = Checkpoint(
            Path(config.checkpoints, name) if config.checkpoints else None,
            {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule},
            settings={**settings, "text_sha256": library.sha256},
            minutes=config.checkpoint_minutes,
        )
        empty: dict[str, Any] = {"losses": [], "curve": [], "held_out": [], "largest_logits": []}
        self.progress = self.checkpoint.load({"step": 0, "logit": 0.0, "seconds": 0.0, **empty})

    def run(self) -> None:
        """Train to the last step, or until the loss is no longer finite."""
        config, done = self.config, self.progress
        started = time.process_time() - done["seconds"]
        for batch in islice(self.batches, done["step"], config.steps):
            loss = token_loss(self.model, self._move(batch))
            if not math.isfinite(loss.item()):
                break
            self.optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            done["step"] += 1
            done["losses"].append(loss.item())
            done["logit"] = max(done["logit"], take_largest_logit(self.model))
            if done["step"] % (config.steps // config.points) == 0:
                self._note()
            done["seconds"] = time.process_time() - started
            self.checkpoint.save_if_due(done)

    def _move(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return batch[0].to(self.device), batch[1].to(self.device)

    @torch.no_grad()
    def _note(self) -> None:
        """Append a point to every curve."""
        done = self.progress
        held_out = token_loss(self.model, self.held_out).item()
        take_largest_logit(self.model)  # of training alone
        done["curve"].append(rounded(sum(done["losses"]) / len(done["losses"])))
        done["held_out"].append(rounded(held_out) if math.isfinite(held_out) else None)
        done["largest_logits"].append(rounded(done["logit"]))
        done["losses"], done["logit"] = [], 0.0


# the first seed of everything comes before the second of anything
@experiment(seed=(0, 1), lr=(1e-3, 1e-2, 3e-2), group=("none", "qk_norm"), condition=_fit)
def larger_language_model(
    seed: Seed,
    lr: PositiveFloat,
    group: QK,
    *,
    layers: PositiveInt = 6,
    width: PositiveInt = 384,
    heads: PositiveInt = 6,
    length: PositiveInt = 256,
    batch_size: PositiveInt = 8,
    steps: PositiveInt = 100,
    warmup: Annotated[int, Field(ge=2)] = 20,
    precision: Precision = "bfloat16",
    points: PositiveInt = 10,
    held_out: PositiveInt = 16,
    text_sha256: str = PINNED.sha256,
    library: str = "",
    device: Literal["cpu", "cuda"] = "cpu",
    checkpoints: str = "",
    checkpoint_minutes: PositiveFloat = 10.0,
) -> dict[str, Any]:
    """Train a pre-norm decoder to predict the next byte of Python's standard library.

    Args:
        lr: peak of AdamW, reached by a warmup and left along a cosine.
        group: with RMS norms of queries and keys in each head, or without.
        length: T, bytes of a window.
        batch_size: N, windows of a batch.
        steps: updates; the gradient is clipped to norm 1.
        warmup: updates of them until the peak.
        precision: of the products with weight matrices; all else is float32.
        held_out: windows of the last files, on which the loss is measured.
        text_sha256: of the text that is expected; "" takes the library that is there.
        library: folder of the text; "" is the standard library of this Python.
        device: "cuda" puts all runs on one GPU.
        checkpoints: folder for one file a run, from which the same command continues; "" for none.
        checkpoint_minutes: from one checkpoint to the next.

    Returns:
        loss: of the held-out windows after the last update, in nats for a byte; None where the
            training loss was no longer finite. Guessing all bytes alike has log(256).
        curve: mean training loss of each part of the steps, as many parts as `points`.
        held_out: the loss of the held-out windows at the end of each part.
        largest_logits: largest magnitude of an attention logit in the training steps of each part.
        parameters: of the decoder.
        tokens: bytes that were predicted in training.
        core_minutes: of computing, on one core; on a GPU, of the core that drives it.
        processor: its name, or that of the GPU, which other runs may use at the same time.
    """
    config = SimpleNamespace(**locals())
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: got 'cuda', and torch finds no GPU here; leave it at 'cpu'")
    text = load_library(text_sha256, folder=Path(library) if library else None)
    config.text_sha256 = text.sha256
    training = Training(config, text)
    training.run()
    done = training.progress
    training.checkpoint.remove()
    return {
        "loss": done["held_out"][-1] if done["step"] == steps else None,
        "curve": done["curve"],
        "held_out": done["held_out"],
        "largest_logits": done["largest_logits"],
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "tokens": done["step"] * batch_size * length,
        "core_minutes": rounded(done["seconds"] / 60),
        "processor": torch.cuda.get_device_name() if device == "cuda" else processor_name(),
    }
