"""The report on a model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from typing import Any, Literal

from normlab import norms
from normlab.checks.fingerprint import Fingerprint

Severity = Literal["error", "warning", "note"]


def _find_book() -> str:
    """What NORMLAB_BOOK says, else where the book was published when the package was released."""
    released = ""
    with contextlib.suppress(metadata.PackageNotFoundError):
        for link in metadata.metadata("normlab").get_all("Project-URL", ()):
            if link.startswith("Documentation, "):
                released = f"{link.removeprefix('Documentation, ')}/book"
    return os.environ.get("NORMLAB_BOOK", released).rstrip("/")


@dataclass(frozen=True)
class Finding:
    """One fault, in one module or in several.

    Attributes:
        rule: short name of the rule.
        severity: "error": outputs are wrong; "warning": look at it; "note": may be meant so.
        modules: paths in the model; "" is the model itself.
        message: what is wrong, and the remedy.
        page: of the book and the place in it, such as "debugging_causes#debugging-eval".
    """

    rule: str
    severity: Severity
    modules: tuple[str, ...]
    message: str
    page: str

    @property
    def module(self) -> str:
        """The first of the modules."""
        return self.modules[0]

    @property
    def explained(self) -> str:
        """Where the book explains it: an address, where that of the book is known."""
        chapter, _, target = self.page.partition("#")
        book = _find_book()
        local = f"book/{chapter}.ipynb, section {target}"
        return f"{book}/{chapter}.html#{target}" if book else local

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"modules": list(self.modules)}


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for all modules of which the same is said."""
    by_text: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = finding.rule, finding.message
        known = by_text.get(key)
        modules = (*(known.modules if known else ()), *finding.modules)
        by_text[key] = replace(finding, modules=tuple(dict.fromkeys(modules)))
    order: list[Severity] = ["error", "warning", "note"]
    return sorted(by_text.values(), key=lambda f: order.index(f.severity))


@dataclass(frozen=True)
class Norm:
    """One norm of the model.

    Attributes:
        module: its path in the model; of a function that is called, that of the module that
            calls it, and its name.
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


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


@dataclass
class Examination:
    """Result of :func:`normlab.doctor`.

    Attributes:
        findings: faults, the gravest first.
        norms: the norms that were understood, in the order of their first call.
        unknown: paths of modules and calls that look like norms and were not understood.
        reasons: of the unknown, why.
        notes: what could not be examined, and why.
        no_statistics: paths of modules that are named like norms and take no statistics of their
            input.
        frozen: paths of batch norms that normalize with their running statistics in training, too.
        of_weights: paths of modules that normalize a weight and not their input (weight
            standardization, weight norm).
        peak_memory: bytes that the process took at most above those at the start; None where the
            system does not tell.
    """

    findings: list[Finding] = field(default_factory=list)
    norms: list[Norm] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    no_statistics: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    of_weights: list[str] = field(default_factory=list)
    peak_memory: int | None = None

    @property
    def passed(self) -> bool:
        """Whether all norms were understood and nothing worse than a note was found."""
        return not self.unknown and all(f.severity == "note" for f in self.findings)

    @property
    def summary(self) -> str:
        """One line: how many norms were understood, and what was found."""
        total = len(self.norms) + len(self.unknown)
        head = (
            f"{_count(total, 'norm')}: {len(self.norms)} understood, "
            f"{len(self.unknown)} not understood; "
        )
        if self.frozen:
            frozen = _count(len(self.frozen), "batch norm")
            head = f"{head}{frozen} more, frozen; " if total else f"{frozen}, all frozen; "
        by_severity = dict.fromkeys(("error", "warning", "note"), 0)
        for finding in self.findings:
            by_severity[finding.severity] += 1
        counts = [_count(n, s) for s, n in by_severity.items() if n]
        head += ", ".join(counts) or "no faults found"
        if self.unknown:
            head += ". This is no all-clear: what was not understood was not checked"
        return head

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "passed": self.passed,
            "findings": [f.to_dict() for f in self.findings],
            "norms": [norm.to_dict() for norm in self.norms],
            "unknown": list(self.unknown),
            "reasons": dict(self.reasons),
            "notes": list(self.notes),
            "no_statistics": list(self.no_statistics),
            "frozen": list(self.frozen),
            "of_weights": list(self.of_weights),
            "peak_memory": self.peak_memory,
        }

    def to_text(self, *, every: bool = False) -> str:
        """The report in lines.

        Args:
            every: name all modules of a group, and not the first three alone.
        """
        lines = [self.summary]
        for f in self.findings:
            where = name_modules(f.modules, every=every)
            lines.append(f"  {f.severity} {f.rule}: {where}: {f.message} (see {f.explained})")
        by_reason: dict[str, list[str]] = {}
        for name in self.unknown:
            by_reason.setdefault(self.reasons[name], []).append(name)
        for reason, names in by_reason.items():
            lines.append(f"  not understood: {name_modules(names, every=every)}: {reason}")
        apart = {"frozen": self.frozen, "no statistics": self.no_statistics}
        apart["norms of weights"] = self.of_weights
        lines += [f"  {k}: {name_modules(v, every=every)}" for k, v in apart.items() if v]
        lines += [f"  note: {note}" for note in self.notes]
        lines += _table(self.norms, every=every)
        if self.peak_memory is not None:
            lines.append(f"  memory: {self.peak_memory / 2**20:.0f} MiB above the model at most")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()


def name_modules(modules: Iterable[str], *, every: bool) -> str:
    """All names, or how many there are and the first three."""
    names = [name or "(the model)" for name in modules]
    if every or len(names) <= 3:
        return ", ".join(names)
    return f"{len(names)} modules, {', '.join(names[:3])}, …"


COLUMNS = ("module", "class", "input", "family", "axes", "eps", "followed by")


def rows(found: Iterable[Norm], *, every: bool) -> list[tuple[str, ...]]:
    """The norms as cells; those that are alike in one row, unless `every` is asked for."""
    by_kind: dict[tuple[str, ...], list[Norm]] = {}
    for norm in found:
        print_ = norm.fingerprint
        axes = ", ".join(map(str, print_.reduced_axes or ()))
        after = print_.followed_by or ("a condition" if print_.modulated else "")
        axes = f"{axes} {print_.variant}" if print_.variant else axes
        family = f"{print_.family}{', divisor n-1' if print_.divisor == 'n-1' else ''}"
        key: tuple[str, ...] = (norm.kind, family, axes, print_.describe_eps(), after)
        by_kind.setdefault((*key, norm.module) if every else key, []).append(norm)
    table: list[tuple[str, ...]] = []
    for key, alike in by_kind.items():
        kind, *rest = key[:5]
        more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        shapes = list(dict.fromkeys("×".join(map(str, norm.shape)) for norm in alike))
        others = ", …" if len(shapes) > 1 else ""
        name = alike[0].module or "(the model)"
        table.append((f"{name}{more}", kind, f"{shapes[0]}{others}", *rest))
    return table


def _table(found: list[Norm], *, every: bool) -> list[str]:
    if not found:
        return []
    table: list[tuple[str, ...]] = [COLUMNS, *rows(found, every=every)]
    widths = [max(len(row[k]) for row in table) for k in range(len(COLUMNS))]
    return [
        "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
