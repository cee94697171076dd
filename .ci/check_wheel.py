"""Build the wheel, and import it where nothing is installed but torch and NumPy."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Run from the unpacked wheel: what the book and the tests need counts as not installed.
PROGRAM = """
import importlib, sys

class Absent:
    names = {names!r}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
for part in {parts!r}:
    assert importlib.import_module(part).__file__.startswith({folder!r}), part
"""
EXTRAS = {
    *("IPython", "PIL", "dask", "hypothesis", "ipykernel", "joblib", "jupyter_book", "matplotlib"),
    *("myst_nb", "nbclient", "nbformat", "pytest", "sklearn", "sphinx", "threadpoolctl", "tqdm"),
    *("numba", "transformers", "triton", "tyro", "yaml"),
}
# pytest itself imports its plugin.
NEED_EXTRAS = {"book.experiments", "book.plotting", "pytest_plugin"}
# Folders whose folders are rooms.
ROOFS = ("book", "checks")


def inits(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/__init__.py"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.rmtree(ROOT / "build", ignore_errors=True)  # else it adds files that are gone
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, "."]
        subprocess.run(build, cwd=ROOT, check=True)
        (wheel,) = Path(folder).glob("normlab-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            archive.extractall(Path(folder) / "unpacked")
        tops = {name.partition("/")[0] for name in names if ".dist-info" not in name}
        assert tops == {"normlab"}, f"the wheel holds {sorted(tops)}"
        assert "normlab/py.typed" in names, "the wheel lacks py.typed"
        held = {name for name in names if name.startswith("normlab/")}
        source = {p.relative_to(ROOT).as_posix() for p in ROOT.glob("normlab/**/*.py")}
        assert source <= held, f"the wheel lacks {sorted(source - held)}"

        unpacked = Path(folder) / "unpacked"
        package = unpacked / "normlab"
        rooms = {path.stem for path in package.iterdir() if not path.stem.startswith("__")}
        rooms |= {f"{roof}.{path.parent.name}" for roof in ROOFS for path in inits(package / roof)}
        parts = [f"normlab.{room}" for room in sorted(rooms - NEED_EXTRAS - {"py"})]
        program = PROGRAM.format(names=EXTRAS, parts=["normlab", *parts], folder=str(unpacked))
        subprocess.run([sys.executable, "-c", program], cwd=unpacked, check=True)
    print(
        f"{wheel.name}: {len(names)} files; imports {', '.join(parts)} with torch and NumPy alone"
    )


if __name__ == "__main__":
    main()
