"""What division among processes, and forward passes run twice, do to the norms of a model."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from normlab.inspection.model_run import FoundNorm, ModelRun
from normlab.inspection.report import Finding
from normlab.inspection.tracing import Example
from normlab.probing.arguments import tensors_in
from normlab.probing.state import copy_module


def process_count() -> int:
    """Number of processes that `torch.distributed` joins; 1 where it does not run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _is_data_parallel(module: nn.Module) -> bool:
    # a torch that was built without processes has no such class to import
    names = (f"{kind.__module__}.{kind.__name__}" for kind in type(module).__mro__)
    return "torch.nn.parallel.distributed.DistributedDataParallel" in names


def without_data_parallel(model: nn.Module) -> nn.Module:
    """The module inside of a DistributedDataParallel, whose forward sends nothing for it."""
    return model.module if _is_data_parallel(model) else model  # type: ignore[return-value]


def updating(run: ModelRun) -> list[FoundNorm]:
    """Norms that normalize with their batch, as the model stands, and record its statistics."""
    return [norm for norm in run.norms if norm.record.over_batch and norm.records_batch]


def find_recomputed(
    model: nn.Module, example: Example, names: Iterable[str], notes: list[str]
) -> frozenset[str]:
    """Those of the named modules that the backward pass of a model calls again.

    Checkpointing does that. A copy is run with gradients, so that no hook on a parameter, such as
    those of DistributedDataParallel, is called. Where that fails, the notes get a sentence.
    """
    again: set[str] = set()
    backward = False

    def watch(name: str) -> Any:
        return lambda *_: again.add(name) if backward else None

    try:
        other = copy_module(model)
        for name in names:
            other.get_submodule(name).register_forward_pre_hook(watch(name))
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            given = tensors_in(other(*example.args, **example.kwargs))
            outputs = [t for _, t in given if t.requires_grad]
            backward = True
            if outputs:
                torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    except Exception as error:  # a model may fail in any way
        first = str(error).partition("\n")[0]
        notes.append(f"no backward pass was run, because it raises: {first}")
    return frozenset(again)


def find_partial(model: nn.Module, norms: Iterable[FoundNorm]) -> frozenset[str]:
    """Names of parameters of norms that are equal on all processes, with different gradients."""
    if process_count() == 1 or all(p.grad is None for p in model.parameters()):
        return frozenset()
    from normlab.parallel import find_partial_gradients

    paths = {norm.path for norm in norms}
    found = find_partial_gradients(model)
    return frozenset(name for name in found if name.rpartition(".")[0] in paths)


def is_shared(module: nn.Module) -> bool:
    """Whether a norm is computed together with other processes, so that one is no measure."""
    return hasattr(module, "process_group")


def check_data_parallel(run: ModelRun) -> Iterator[Finding]:
    """Batch norms that see the samples of one process, and whose statistics are saved."""
    size = process_count()
    around = {f"{n}.": m for n, m in run.modules.items() if _is_data_parallel(m)}
    around |= {"": run.given} if _is_data_parallel(run.given) else {}
    for norm in updating(run):
        wrapper: Any = next((m for n, m in around.items() if norm.path.startswith(n)), None)
        divided = wrapper is not None or (size > 1 and not around)
        if not divided or is_shared(norm.module):
            continue
        many = f"each of {size} processes" if size > 1 else "each process"
        yield norm.finding(
            "unsynchronized_batch_norm",
            f"{many} normalizes with the statistics of its own samples, and gradients differ from "
            "those of the whole batch. With few samples on a process, call "
            "convert_sync_batchnorm(model) before DistributedDataParallel, or use a group norm",
        )
        if wrapper is not None:
            # torch before 2.13 has the older name alone
            sent = getattr(wrapper, "forward_sync_buffers", None)
            sent = wrapper.broadcast_buffers if sent is None else sent
            whose = (
                "DistributedDataParallel overwrites its running statistics with those of rank 0 "
                "before each forward pass, so what is saved is what rank 0 saw"
                if sent
                else "each process keeps running statistics of its own, so what is saved is what "
                "the process that saves has seen"
            )
            yield norm.finding(
                "rank_0_statistics",
                f"{whose}. Synchronize it, or average the buffers before saving",
            )


def check_recomputed(run: ModelRun) -> Iterator[Finding]:
    """Batch norms whose forward pass the backward pass runs again."""
    for norm in updating(run):
        momentum = getattr(norm.module, "momentum", None)
        if norm.path not in run.recomputed:
            continue
        remedy = "Normalize outside of the checkpointed part"
        if isinstance(momentum, float) and 0 < momentum < 1:
            remedy = (
                f"If momentum {momentum:g} was meant for one update, pass 1 - sqrt(1 - momentum), "
                f"{1 - (1 - momentum) ** 0.5:.3g}, or normalize outside of the checkpointed part"
            )
        yield norm.finding(
            "recomputed_batch_norm",
            "the backward pass runs its forward pass again, as checkpointing does, so each batch "
            f"enters its running statistics twice. {remedy}",
        )


def check_partial_gradients(run: ModelRun) -> Iterator[Finding]:
    """Norms of which each process has a copy, and a gradient of its own."""
    for norm in run.norms:
        prefix = f"{norm.path}." if norm.path else ""
        hit = [n.removeprefix(prefix) for n in sorted(run.partial) if n.startswith(prefix)]
        hit = [n for n in hit if "." not in n]
        if hit:
            yield norm.finding(
                "partial_gradients",
                f"{' and '.join(hit)}: equal on all processes, while the gradients differ, so a "
                "step makes the copies differ. Where tokens or heads are divided, sum the "
                "gradients before the step (reduce_norm_gradients); where samples are, average "
                "them, as DistributedDataParallel does",
            )
