"""What torch's kernels run on here: threads, and the vector code that was chosen."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch


class VectorCode(NamedTuple):
    """How the code of torch's norms works, in the terms of :mod:`normlab.book.kernel_models`."""

    lanes: int  #: float32 values in a vector register
    fused: bool  #: a multiply and an add round once
    checked: bool  #: the models have been seen to agree with torch bit for bit on such a machine


def vector_code() -> VectorCode:
    """The vector code that torch runs its norms with on this machine.

    On x86 the AVX-512 build of these kernels registers nothing, so the AVX2 build runs;
    ATEN_CPU_CAPABILITY=default, read when torch is imported, selects code without FMA. Other
    machines are assumed to have registers of four values and FMA.

    Source:
        torch 2.13.0, aten/src/ATen/native/DispatchStub.h and aten/src/ATen/cpu/vec/vec_base.h.

    Example:
        >>> vector_code().lanes in (4, 8)
        True
    """
    if platform.machine().lower() in ("x86_64", "amd64", "i686"):
        return VectorCode(8, torch.backends.cpu.get_cpu_capability() != "DEFAULT", checked=True)
    return VectorCode(4, fused=True, checked=False)


def processor_name() -> str:
    """The name of the processor, where the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Set torch's number of threads, and put it back.

    Example:
        >>> before = torch.get_num_threads()
        >>> with with_threads(2):
        ...     torch.get_num_threads()
        2
        >>> torch.get_num_threads() == before
        True
    """
    if count < 1:
        raise ValueError(f"count: got {count}; expected a positive number")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
