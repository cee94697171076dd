"""A report on a terminal: tables, colors and links; plain text where it is piped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_COLORS = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def show(report: Any, *, every: bool = False, say: Callable[[str], str] = str) -> None:
    """Print the report of any command, with all modules of a group or the first of them.

    `say` puts a message into the words of the command line.
    """
    if not sys.stdout.isatty():
        print(report.to_text(every=every) if hasattr(report, "to_text") else say(str(report)))
        return
    from rich.console import Console

    console = Console(highlight=False)
    if hasattr(report, "findings"):
        show_examination(console, report, every=every)
    else:
        for k, line in enumerate(say(str(report)).splitlines()):
            passed = getattr(report, "passed", None)
            color = {True: "bold green", False: "bold red", None: "bold"}[passed]
            console.print(line, style=color if k == 0 else None, markup=False)


def show_examination(console: Any, examined: Any, *, every: bool) -> None:
    """The report of the doctor, an :class:`normlab.checks.inspection.Examination`, as tables."""
    from rich.table import Table
    from rich.text import Text

    from normlab.checks.inspection.report import COLUMNS, name_modules, rows

    console.print(examined.summary, style="bold green" if examined.passed else "bold", markup=False)
    if examined.findings or examined.unknown:
        table = Table("", "rule", "modules", "what", show_lines=True)
        for f in examined.findings:
            linked = "://" in f.explained
            rule = Text(f.rule, style=f"link {f.explained}" if linked else "")
            text = Text(f.message if linked else f"{f.message} (see {f.explained})")
            where = Text(name_modules(f.modules, every=every))
            table.add_row(Text(f.severity, style=_COLORS[f.severity]), rule, where, text)
        for name in examined.unknown:
            unknown = Text("not understood", style="magenta")
            table.add_row(unknown, "", Text(name or "(the model)"), Text(examined.reasons[name]))
        console.print(table)
    for note in examined.notes:
        console.print(f"note: {note}", markup=False)
    if examined.norms:
        table = Table(*COLUMNS)
        for row in rows(examined.norms, every=every):
            table.add_row(*map(Text, row))
        console.print(table)
    if examined.peak_memory is not None:
        console.print(f"memory: {examined.peak_memory / 2**20:.0f} MiB above the model at most")
