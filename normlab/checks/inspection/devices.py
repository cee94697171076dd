"""What division among processes, and forward passes run twice, do to the norms of a model."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from normlab.checks.inspection.foreign import first_line
from normlab.checks.inspection.model_run import Found, FoundNorm, ModelRun
from normlab.checks.probing.arguments import tensors_in
from normlab.checks.probing.state import copy_module


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


def _updating(run: ModelRun) -> list[FoundNorm]:
    """Norms that use and record statistics of their batch, in the mode that they are in."""
    return [norm for norm in run.norms if norm.record.over_batch and norm.records_batch]


def _find_recomputed(run: ModelRun, names: Iterable[str]) -> set[str]:
    """Those of the named modules that the backward pass of a model calls again."""
    again: set[str] = set()
    backward = False

    def watch(name: str) -> Any:
        return lambda *_: again.add(name) if backward else None

    try:
        # a copy, so that no hook on a parameter is called, such as DistributedDataParallel's
        other = copy_module(run.model)
        for name in names:
            other.get_submodule(name).register_forward_pre_hook(watch(name))
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            given = tensors_in(other(*run.example.args, **run.example.kwargs))
            outputs = [t for _, t in given if t.requires_grad]
            backward = True
            if outputs:
                torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    except Exception as error:  # a model may fail in any way
        run.notes.append(f"no backward pass was run, because it raises: {first_line(error)}")
    return again


def is_shared(module: nn.Module) -> bool:
    """Whether a norm is computed together with other processes, so that one is no measure."""
    return hasattr(module, "process_group")


def _divided(run: ModelRun) -> Iterator[tuple[FoundNorm, Any]]:
    """Batch norms that see the samples of one process, each with its DistributedDataParallel."""
    around = {f"{n}.": m for n, m in run.modules.items() if _is_data_parallel(m)}
    around |= {"": run.given} if _is_data_parallel(run.given) else {}
    for norm in _updating(run):
        wrapper = next((m for n, m in around.items() if norm.path.startswith(n)), None)
        divided = wrapper is not None or (process_count() > 1 and not around)
        if divided and not is_shared(norm.module):
            yield norm, wrapper


def unsynchronized_batch_norm(run: ModelRun) -> Found:
    """Batch norms that see the samples of one process."""
    size = process_count()
    many = f"each of {size} processes" if size > 1 else "each process"
    for norm, _ in _divided(run):
        yield (
            (norm.path,),
            f"{many} normalizes with the statistics of its own samples, and gradients differ from "
            "those of the whole batch. With few samples on a process, call "
            "convert_sync_batchnorm(model) before DistributedDataParallel, or use a group norm",
        )


def rank_0_statistics(run: ModelRun) -> Found:
    """Batch norms of which the statistics of one process are saved."""
    for norm, wrapper in _divided(run):
        if wrapper is None:
            continue
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
        text = f"{whose}. Synchronize it, or average the buffers before saving"
        yield (norm.path,), text


def recomputed_batch_norm(run: ModelRun) -> Found:
    """Batch norms whose forward pass the backward pass runs again."""
    watched = {norm.path: norm for norm in _updating(run)}
    again = _find_recomputed(run, watched) if watched and run.trace.as_it_is else set()
    for path, norm in watched.items():
        if path not in again:
            continue
        momentum = getattr(norm.module, "momentum", None)
        remedy = "Normalize outside of the checkpointed part"
        if isinstance(momentum, float) and 0 < momentum < 1:
            remedy = (
                f"If momentum {momentum:g} was meant for one update, pass 1 - sqrt(1 - momentum), "
                f"{1 - (1 - momentum) ** 0.5:.3g}, or normalize outside of the checkpointed part"
            )
        yield (
            (path,),
            "the backward pass runs its forward pass again, as checkpointing does, so each batch "
            f"enters its running statistics twice. {remedy}",
        )


def partial_gradients(run: ModelRun) -> Found:
    """Norms of which each process has a copy, and a gradient of its own."""
    if process_count() == 1 or all(p.grad is None for p in run.model.parameters()):
        return
    from normlab.parallel import find_partial_gradients

    partial = sorted(find_partial_gradients(run.model))
    for norm in run.norms:
        split = (name.rpartition(".") for name in partial)
        hit = [own for owner, _, own in split if owner == norm.path]
        if hit:
            yield (
                (norm.path,),
                f"{' and '.join(hit)}: equal on all processes, while the gradients differ, so a "
                "step makes the copies differ. Where tokens or heads are divided, sum the "
                "gradients before the step (reduce_norm_gradients); where samples are, average "
                "them, as DistributedDataParallel does. Before the first step a weight that is "
                "divided itself looks the same",
            )
