"""Record what the doctor says of the zoo: `.zoo/bin/python tests/zoo/zoo_record.py`.

It writes `book/_data/zoo.json`, from which `book/_tools/zoo_tables.py` makes the tables of the
page, and prints a table with the seconds that each model took.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import statistics
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import conftest  # noqa: F401  what has to be so before the libraries are imported
import torch
from test_zoo import MODELS, line_of
from zoo_table import Model

from normlab import doctor

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "book/_data/zoo.json"
COMMAND = ".zoo/bin/python tests/zoo/zoo_record.py"


def examine(row: Model) -> tuple[dict[str, Any], float]:
    """What is recorded of one model, and how many seconds the doctor took."""
    torch.manual_seed(0)
    model, example = row.build(), row.example()
    start = time.perf_counter()
    examined = doctor(model, example)
    seconds = time.perf_counter() - start
    return {
        "model": row.name,
        "norms": len(examined.norms) + len(examined.unknown),
        "understood": len(examined.norms),
        "unknown": len(examined.unknown),
        "no_statistics": len(examined.no_statistics) + len(examined.frozen),
        "families": dict(Counter(str(n.fingerprint.family) for n in examined.norms)),
        "findings": [
            {
                "rule": f.rule,
                "severity": f.severity,
                "modules": len(f.modules),
                "file": row.seen_in[f.rule][0],
                "line": line_of(*row.seen_in[f.rule]),
            }
            for f in examined.findings
        ],
    }, seconds


def main() -> None:
    """Examine all models, write the record, print the table."""
    warnings.simplefilter("ignore")
    runs = []
    took = []
    columns = ("model", "norms", "understood", "not understood", "findings", "seconds")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in MODELS:
        run, seconds = examine(row)
        found = ", ".join(f"{f['rule']} ({f['modules']}×)" for f in run["findings"]) or "none"
        print(
            f"| {run['model']} | {run['norms']} | {run['understood']} | {run['unknown']} | {found} "
            f"| {seconds:.1f} |",
            flush=True,
        )
        runs.append(run)
        took.append(seconds)
    print(f"seconds: median {statistics.median(took):.1f}, worst {max(took):.1f}")
    libraries = sorted({row.library for row in MODELS})
    versions = {name: importlib.metadata.version(name).partition("+")[0] for name in libraries}
    record = {
        "command": COMMAND,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            **versions,
        },
        "runs": runs,
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
