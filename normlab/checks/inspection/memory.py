"""How much memory a run takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")


def _field(name: str) -> int | None:
    """Bytes that Linux gives for this process; None on other systems."""
    with contextlib.suppress(OSError, ValueError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    return None


def watch_memory() -> Callable[[], int | None]:
    """Start to measure; the returned function gives the highest use since then, above the start."""
    start = _field("VmRSS")
    try:
        with open("/proc/self/clear_refs", "w") as file:  # sets the highest value to the present
            file.write("5")
    except OSError:
        start = None

    def peak() -> int | None:
        highest = _field("VmHWM")
        return None if start is None or highest is None else max(0, highest - start)

    return peak
