"""A long run that was killed goes on from its last checkpoint, as if nothing had happened."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import torch


class Stateful(Protocol):
    """What torch's modules, optimizers and schedules have in common."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any: ...


class Checkpoint:
    """One file that holds the state of a run, written from time to time.

    Args:
        settings: plain values on which the run depends; a file with others is refused.
        minutes: least time from one :meth:`save_if_due` that writes to the next.
    """

    def __init__(
        self,
        path: Path | None,
        parts: dict[str, Stateful],
        *,
        settings: dict[str, Any],
        minutes: float = 0.0,
    ) -> None:
        self.path = path
        self.parts = parts
        self.settings = {**settings, "torch": str(torch.__version__)}
        self.seconds = 60 * minutes
        self._written = time.monotonic()

    def load(self, progress: dict[str, Any]) -> dict[str, Any]:
        """Put the parts into the saved state, and return the saved progress.

        Raises:
            ValueError: the file belongs to a run with other settings, or to another torch.
        """
        if self.path is None or not self.path.exists():
            return progress
        state = torch.load(self.path, map_location="cpu", weights_only=True)
        names = sorted({*self.settings, *state["settings"]})
        other = [n for n in names if self.settings.get(n) != state["settings"].get(n)]
        if other:
            raise ValueError(
                f"checkpoints: {self.path} is of a run with another {', '.join(other)}; "
                "name another folder, or delete the file"
            )
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        saved: dict[str, Any] = state["progress"]
        print(f"{self.path.name}: continues at step {saved['step']}", file=sys.stderr, flush=True)
        return saved

    def save_if_due(self, progress: dict[str, Any]) -> None:
        """Write the file if the last one is old enough."""
        if self.path is not None and time.monotonic() - self._written >= self.seconds:
            self.save(progress)
            self._written = time.monotonic()

    def save(self, progress: dict[str, Any]) -> None:
        """Write the file whole or not at all: a kill in between leaves the last one."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".part")
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({"settings": self.settings, "parts": parts, "progress": progress}, beside)
        os.replace(beside, self.path)

    def remove(self) -> None:
        """Delete the file of a run that is finished."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
