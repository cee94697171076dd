"""What an examination of a model has to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from normlab import norms
from normlab.fingerprint import Fingerprint


@dataclass(frozen=True)
class Finding:
    """One fault.

    Attributes:
        rule: short name of the rule.
        module: path of the module in the model; "" for the model itself.
        message: what is wrong, and the remedy.
    """

    rule: str
    module: str
    message: str


@dataclass(frozen=True)
class Norm:
    """One norm of the model.

    Attributes:
        module: its path in the model.
        kind: name of its class.
        shape: of the input that it received.
        fingerprint: what it computes.
    """

    module: str
    kind: str
    shape: tuple[int, ...]
    fingerprint: Fingerprint

    @property
    def record(self) -> norms.Norm:
        """What is known of its family."""
        return norms.NORMS[str(self.fingerprint.family)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        place = {"module": self.module, "kind": self.kind, "shape": list(self.shape)}
        return place | self.fingerprint.to_dict()


@dataclass
class Examination:
    """Result of :func:`normlab.doctor`.

    Attributes:
        findings: faults, in the order of the rules.
        norms: the norms of the model, in the order of their first call.
        notes: what could not be examined, and why.
    """

    findings: list[Finding] = field(default_factory=list)
    norms: list[Norm] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "findings": [vars(f) for f in self.findings],
            "norms": [norm.to_dict() for norm in self.norms],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        count = len(self.findings)
        faults = "no faults" if not count else "1 fault" if count == 1 else f"{count} faults"
        norms = "1 norm" if len(self.norms) == 1 else f"{len(self.norms)} norms"
        lines = [f"{norms}, {faults} found"]
        lines += [f"  {f.rule}: {f.module or 'model'}: {f.message}" for f in self.findings]
        lines += [f"  note: {note}" for note in self.notes]
        if self.norms:
            rows = [("module", "class", "input", "family", "axes", "eps")]
            for norm in self.norms:
                found = norm.fingerprint
                eps = "-" if found.eps is None else f"{found.eps:.6g}"
                if found.eps_placement not in (None, "inside"):
                    eps += f" ({found.eps_placement})"
                axes = ", ".join(map(str, found.reduced_axes or ()))
                shape = "×".join(map(str, norm.shape))
                rows.append((norm.module, norm.kind, shape, str(found.family), axes, eps))
            widths = [max(len(row[k]) for row in rows) for k in range(6)]
            for row in rows:
                cells = (cell.ljust(w) for cell, w in zip(row, widths, strict=True))
                lines.append("  " + "  ".join(cells).rstrip())
        return "\n".join(lines)
