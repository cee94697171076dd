"""Write the tables of the zoo's page from its record: `python book/_tools/zoo_tables.py`.

The record is `book/_data/zoo.json`; `tests/zoo/zoo_record.py` makes it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BOOK = Path(__file__).resolve().parents[1]
PAGE, RECORD = BOOK / "zoo.md", BOOK / "_data/zoo.json"
LIBRARIES = {
    "denoising_diffusion_pytorch": "denoising diffusion",
    "monai": "MONAI",
    "open_clip_torch": "open_clip",
    "segmentation_models_pytorch": "segmentation models",
    "vector_quantize_pytorch": "vector quantize",
    "vit_pytorch": "vit-pytorch",
    "x_transformers": "x-transformers",
}


def load(book: Path = BOOK) -> dict[str, Any]:
    """The record."""
    return json.loads((book / "_data/zoo.json").read_text(encoding="utf-8"))


def _libraries(record: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(run["model"].split()[0] for run in record["runs"]))


def write_summary(record: dict[str, Any]) -> str:
    """One sentence with all counts."""
    runs = record["runs"]
    norms, understood = (sum(run[k] for run in runs) for k in ("norms", "understood"))
    silent = sum(not run["findings"] for run in runs)
    apart = sum(run["no_statistics"] for run in runs)
    found = [(run["model"], f) for run in runs for f in run["findings"]]
    grades = dict.fromkeys(("error", "warning", "note"), 0)
    for _, one in {(model, f["rule"]): f for model, f in found}.items():
        grades[one["severity"]] += 1
    counts = ", ".join(f"{n} {grade}{'s' if n != 1 else ''}" for grade, n in grades.items())
    return (
        f"{len(runs)} models of {len(_libraries(record))} libraries call {norms} norms. The doctor "
        f"names {understood} of them and lists the other {norms - understood}; {apart} more layers "
        "are called norms and take no statistics. It finds nothing wrong in "
        f"{silent} of the models, and gives {counts} about the others."
    )


def write_versions(record: dict[str, Any]) -> str:
    """Each library with its version, how many models, and how many norms."""
    lines = ["| library | version | models | norms | named | listed |", "|---|---|---|---|---|---|"]
    for name in _libraries(record):
        runs = [run for run in record["runs"] if run["model"].split()[0] == name]
        sums = [str(sum(run[k] for run in runs)) for k in ("norms", "understood", "unknown")]
        cells = [LIBRARIES.get(name, name), record["versions"][name], str(len(runs)), *sums]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _short(model: str) -> str:
    return f"`{model.partition(' ')[2]}`"


def _places(record: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for run in record["runs"]:
        library = run["model"].split()[0]
        for found in run["findings"]:
            file = found["file"].rpartition("/")[2]  # a whole path is wider than the page
            yield (
                f"{LIBRARIES.get(library, library)} {_short(run['model'])}",
                f"`{found['rule']}`",
                str(found["modules"]),
                f"`{file}`, line {found['line']}",
            )


def write_findings(record: dict[str, Any]) -> str:
    """Each finding, with the line of the library's source that is its reason."""
    lines = ["| model | finding | modules | where |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(cells)} |" for cells in _places(record)]
    return "\n".join(lines)


def write_models(record: dict[str, Any]) -> str:
    """Each model with its counts."""
    lines = ["| library | model | norms | families | listed |", "|---|---|---|---|---|"]
    for run in record["runs"]:
        library = run["model"].split()[0]
        families = ", ".join(f"{n} {k.replace('_', ' ')}" for k, n in run["families"].items())
        cells = [
            LIBRARIES.get(library, library),
            _short(run["model"]),
            str(run["norms"]),
            families or "none",
            str(run["unknown"] or "none"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


PARTS = {
    "summary": write_summary,
    "versions": write_versions,
    "findings": write_findings,
    "models": write_models,
}


def write_page(text: str, record: dict[str, Any]) -> str:
    """The page with what stands between its marks made anew.

    Raises:
        ValueError: a pair of marks is not there once.
    """
    for part, write in PARTS.items():
        marks = rf"(% generated: {part}\n\n).*?(\n\n% end)"
        content = write(record)
        text, count = re.subn(marks, lambda m, c=content: m[1] + c + m[2], text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{part}: {count} pairs of marks; expected one")
    return text


def main() -> None:
    """Write the page."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")


if __name__ == "__main__":
    main()
