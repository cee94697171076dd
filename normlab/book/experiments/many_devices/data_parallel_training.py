"""Does a network learn the same on several processes as on one, with each norm?"""

from __future__ import annotations

import atexit
import functools
import math
import os
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from normlab.book.experiments.bn_vs_ln.transformer_norms import replace_by_batch_norm
from normlab.book.experiments.checkpoints import Checkpoint
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.data.sequences import load_text, text_batches
from normlab.book.experiments.networks.classifiers import make_convnet
from normlab.book.experiments.networks.transformer import make_transformer
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit
from normlab.layers import GroupNorm, LayerNorm
from normlab.norms import NORMS
from normlab.parallel import Processes, convert_sync_batchnorm, group_size, sum_over_group

Network = Literal["convnet", "transformer"]
Norm = Literal["batch_norm", "sync_batch_norm", "group_norm", "layer_norm"]
Device = Literal["cpu", "cuda"]
Batches = Iterator[tuple[Tensor, Tensor]]


class TokenGroupNorm(nn.Module):
    """Group norm over the features of each token, in four groups."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.norm = GroupNorm(4, num_features)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (N, T, D), token by token."""
        return self.norm(input.flatten(0, -2)).view_as(input)


def make_model(network: Network, norm: Norm, *, seed: int) -> nn.Module:
    """The network at its first weights; one seed gives every norm the same."""
    over_batch = norm not in NORMS or NORMS[norm].over_batch
    if network == "convnet":
        kind: Any = "batch_norm" if over_batch else norm
        return _synchronize(make_convnet((1, 16, 16, 32), kind, seed=seed, init="he"), norm)
    transformer = make_transformer(
        "pre_norm", layers=2, seed=seed, vocabulary=load_text().vocabulary, length=32, causal=True
    )
    if over_batch:
        return _synchronize(replace_by_batch_norm(transformer), norm)
    if NORMS[norm].grouped:
        for parent in list(transformer.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, LayerNorm):
                    setattr(parent, name, TokenGroupNorm(child.normalized_shape[0]))
    return transformer


def _synchronize(model: nn.Module, norm: Norm) -> nn.Module:
    return model if norm in NORMS else convert_sync_batchnorm(model)


def _make_batches(network: Network, batch_size: int, seed: int) -> tuple[Batches, Batches]:
    """Endless training batches of all processes together, and all test batches."""
    if network == "convnet":
        data = load_digits_split(seed).as_images()
        rest = zip(data.x_test.double().split(50), data.y_test.split(50), strict=True)
        return ((x.double(), y) for x, y in data.batches(batch_size, seed)), rest
    text = load_text()
    train, test = (text._replace(tokens=t) for t in text.tokens.split([160_000, 40_000]))
    held_out = islice(text_batches(test, batch_size=16, seed=0), 10)
    return text_batches(train, batch_size=batch_size, seed=seed), held_out


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(model(x).flatten(0, -2), y.flatten())


def train_one(
    network: Network,
    norm: Norm,
    lr: float,
    seed: int,
    *,
    batch_size: int = 4,
    steps: int = 200,
    device: Device = "cpu",
    checkpoints: str = "",
    every: int = 50,
) -> dict[str, Any]:
    """Train on this process's share of each batch, or continue from a checkpoint."""
    size = group_size()
    rank = dist.get_rank() if size > 1 else 0
    # in float64, or 200 steps make a difference in the last digit one in the first
    model = make_model(network, norm, seed=seed).to(device).double()
    called = DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    name = f"{network}-{norm}-{size}-{lr:g}-{seed}.pt"
    path = Path(checkpoints, name) if checkpoints else None
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer}
    checkpoint = Checkpoint(path, parts, settings={"batch_size": batch_size})
    losses = checkpoint.load({"losses": []})["losses"]
    batches, test = _make_batches(network, batch_size, seed)

    def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = (t.chunk(size)[rank].to(device) for t in batch)
        loss = _loss(model, x, y)
        losses.append(float(sum_over_group(loss.detach())) / size)
        return loss if math.isfinite(losses[-1]) else loss * math.nan  # all end at one step

    def save(step: int) -> None:
        if rank == 0 and len(losses) % every == 0:
            checkpoint.save({"step": len(losses), "losses": losses})

    rest = islice(batches, len(losses), None)
    fit(called, optimizer, rest, steps - len(losses), loss_of=loss_of, after_step=save)
    curve = [sum(part) / len(part) for part in _tenths(losses)]
    test_loss = _test(model.eval(), list(test), torch.device(device))
    return {"curve": list(map(rounded, curve)), "test_loss": rounded(test_loss)}


@torch.no_grad()
def _test(model: nn.Module, parts: list[tuple[Tensor, Tensor]], device: torch.device) -> float:
    """Mean loss over parts of one size."""
    losses = [_loss(model, x.to(device), y.to(device)).item() for x, y in parts]
    return sum(losses) / len(losses)


def _tenths(losses: list[float]) -> list[list[float]]:
    size = max(1, len(losses) // 10)
    return [losses[i : i + size] for i in range(0, len(losses), size)]


@functools.cache
def _pool(processes: int, backend: str) -> Processes:
    """Processes that stay for the next points."""
    return Processes(processes, backend=backend, time_limit=3600, patience=60)


def _join_launched(backend: str) -> None:
    """Find the processes that torchrun started, at the first call.

    The launcher keeps one store for all its restarts, in which gloo would find the addresses of
    processes that are gone; so each restart gets keys of its own.
    """
    if dist.is_initialized():
        return
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    store, rank, size = next(rendezvous("env://"))
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        backend,
        store=PrefixStore(f"restart-{restarts}", store),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    atexit.register(dist.destroy_process_group)


def _is_launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _check_processes(processes: int, batch_size: int) -> None:
    if batch_size % processes:
        raise ValueError(f"processes: got {processes}; expected a divisor of {batch_size}")
    if _is_launched() and processes != int(os.environ["WORLD_SIZE"]):
        raise ValueError(
            f"processes: got {processes}; expected {os.environ['WORLD_SIZE']}, as the launcher says"
        )


@experiment(
    network=("convnet", "transformer"),
    norm=("batch_norm", "sync_batch_norm", "group_norm", "layer_norm"),
    processes=(1, 2),
    lr=(0.006, 0.02, 0.06, 0.2),
    seed=range(3),
    condition=_check_processes,
)
def data_parallel_training(
    network: Network,
    norm: Norm,
    processes: PositiveInt,
    lr: PositiveFloat,
    seed: Seed,
    *,
    batch_size: PositiveInt = 4,
    steps: Steps = 200,
    device: Device = "cpu",
    checkpoints: str = "",
    every: PositiveInt = 50,
) -> dict[str, Any]:
    """Train on the same samples in each step, on one process or divided among several.

    Args:
        network: a convnet on digits, a Transformer on the help topics that come with Python.
        norm: in all places; the Transformer's are over tokens.
        processes: their number; under torchrun, that of its processes.
        lr: learning rate of SGD with momentum 0.9.
        batch_size: samples of a step on all processes together; a multiple of `processes`.
        device: "cuda" gives each process a GPU of its own, over NCCL.
        checkpoints: folder for one file a run, from which the same command continues; "" for none.
        every: steps from one checkpoint to the next.

    Returns:
        curve: mean training loss of each tenth of the steps, over all processes.
        test_loss: cross-entropy in evaluation, with the running statistics of rank 0.
    """
    train = functools.partial(
        train_one,
        network,
        norm,
        lr,
        seed,
        batch_size=batch_size,
        steps=steps,
        device=device,
        checkpoints=checkpoints,
        every=every,
    )
    backend = "nccl" if device == "cuda" else "gloo"
    if _is_launched():
        _join_launched(backend)
        return train()
    if processes == 1:
        return train()
    trained: dict[str, Any] = _pool(processes, backend).run(train)[0]
    return trained
