"""Does a network learn the same on several processes as on one, with each norm?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from normlab.experiments.bn_vs_ln.transformer_norms import replace_by_batch_norm
from normlab.experiments.checkpoints import Checkpoint
from normlab.experiments.data.batches import shuffled_batches
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.data.sequences import load_text, text_batches
from normlab.experiments.former_sweep import grid
from normlab.experiments.networks.classifiers import make_convnet
from normlab.experiments.networks.transformer import make_transformer
from normlab.experiments.recording import rounded
from normlab.experiments.results import Result, read_result
from normlab.experiments.settings import Count, Index, Positive, check_settings
from normlab.layers import GroupNorm, LayerNorm
from normlab.norms import NORMS
from normlab.parallel import Processes, convert_sync_batchnorm, group_size, sum_over_group

Network = Literal["convnet", "transformer"]
Norm = Literal["batch_norm", "sync_batch_norm", "group_norm", "layer_norm"]
Batches = Iterator[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Config:
    """The same samples in each step, on one process or divided among several."""

    #: a convnet on digits, a Transformer on the help topics that come with Python
    networks: tuple[Network, ...] = ("convnet", "transformer")
    #: in all places; the Transformer's are over tokens
    norms: tuple[Norm, ...] = ("batch_norm", "sync_batch_norm", "group_norm", "layer_norm")
    #: numbers of processes; under torchrun, the launcher's number in place of all
    processes: tuple[Count, ...] = (1, 2)
    lrs: tuple[Positive, ...] = (0.006, 0.02, 0.06, 0.2)  #: learning rates
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of split, weights and batches
    batch_size: Count = 4  #: samples of a step on all processes together; a multiple of `processes`
    steps: Count = 200  #: updates of SGD with momentum 0.9
    device: Literal["cpu", "cuda"] = "cpu"  #: "cuda" gives each process a GPU of its own, over NCCL
    #: folder for one file a run, from which the same command continues; "" for none
    checkpoints: str = ""
    every: Count = 50  #: steps from one checkpoint to the next

    def __post_init__(self) -> None:
        check_settings(self)
        if wrong := [n for n in self.processes if self.batch_size % n]:
            raise ValueError(f"processes: got {wrong}; expected divisors of {self.batch_size}")


@dataclass(frozen=True)
class Outcome:
    """One run."""

    network: Network  #: of it
    norm: Norm  #: of it
    processes: int  #: number
    lr: float  #: learning rate
    seed: int  #: of it
    curve: tuple[float, ...]  #: mean training loss of each tenth of the steps, over all processes
    test_loss: float  #: cross-entropy in evaluation, with the running statistics of rank 0


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


def _make_batches(config: Config, network: Network, seed: int) -> tuple[Batches, Batches]:
    """Endless training batches of all processes together, and all test batches."""
    if network == "convnet":
        data = load_digits_split(seed).as_images()
        order = shuffled_batches(len(data.y_train), config.batch_size, seed=seed)
        rest = zip(data.x_test.double().split(50), data.y_test.split(50), strict=True)
        return ((data.x_train[i].double(), data.y_train[i]) for i in order), rest
    text = load_text()
    train, test = (text._replace(tokens=t) for t in text.tokens.split([160_000, 40_000]))
    held_out = islice(text_batches(test, batch_size=16, seed=0), 10)
    return text_batches(train, batch_size=config.batch_size, seed=seed), held_out


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(model(x).flatten(0, -2), y.flatten())


def train_one(config: Config, network: Network, norm: Norm, lr: float, seed: int) -> Outcome:
    """Train on this process's share of each batch, or continue from a checkpoint."""
    size = group_size()
    rank = dist.get_rank() if size > 1 else 0
    device = torch.device(config.device)
    # in float64, or 200 steps make a difference in the last digit one in the first
    model = make_model(network, norm, seed=seed).to(device).double()
    called = DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    name = f"{network}-{norm}-{size}-{lr:g}-{seed}.pt"
    path = Path(config.checkpoints, name) if config.checkpoints else None
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer}
    checkpoint = Checkpoint(path, parts, settings={"batch_size": config.batch_size})
    losses = checkpoint.load({"losses": []})["losses"]
    batches, test = _make_batches(config, network, seed)
    for x, y in islice(batches, len(losses), config.steps):
        mine = (t.chunk(size)[rank].to(device) for t in (x, y))
        loss = _loss(called.train(), *mine)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(sum_over_group(loss.detach())) / size)
        if rank == 0 and len(losses) % config.every == 0:
            checkpoint.save({"step": len(losses), "losses": losses})
    curve = [sum(part) / len(part) for part in _tenths(losses)]
    held_out = _test(model.eval(), list(test), device)
    return Outcome(network, norm, size, lr, seed, tuple(map(rounded, curve)), rounded(held_out))


@torch.no_grad()
def _test(model: nn.Module, parts: list[tuple[Tensor, Tensor]], device: torch.device) -> float:
    """Mean loss over parts of one size."""
    losses = [_loss(model, x.to(device), y.to(device)).item() for x, y in parts]
    return sum(losses) / len(losses)


def _tenths(losses: list[float]) -> list[list[float]]:
    size = max(1, len(losses) // 10)
    return [losses[i : i + size] for i in range(0, len(losses), size)]


def train_all(config: Config) -> list[Outcome]:
    """Every run of a configuration on this number of processes, on each process."""
    axes = {"network": config.networks, "norm": config.norms, "lr": config.lrs}
    return [train_one(config, **point) for point in grid(**axes, seed=config.seeds)]


def _join(backend: str) -> None:
    """Find the processes that torchrun started.

    The launcher keeps one store for all its restarts, in which gloo would find the addresses of
    processes that are gone; so each restart gets keys of its own.
    """
    store, rank, size = next(rendezvous("env://"))
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        backend,
        store=PrefixStore(f"restart-{restarts}", store),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )


def run(config: Config) -> Result:
    """Train with each number of processes; under torchrun, on the processes that it started.

    Args:
        config: settings.
    """
    backend = "nccl" if config.device == "cuda" else "gloo"
    if "TORCHELASTIC_RUN_ID" in os.environ:
        if config.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        _join(backend)
        try:
            return Result(tuple(train_all(config)))
        finally:
            dist.destroy_process_group()
    outcomes: list[Outcome] = []
    for count in config.processes:
        if count == 1:
            outcomes += train_all(config)
        else:
            with Processes(count, backend=backend, time_limit=3600, patience=60) as processes:
                outcomes += processes.run(train_all, config)[0]
    return Result(tuple(outcomes))


read = read_result  # outcomes with the fields of Outcome
