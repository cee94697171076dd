"""A newcomer's first ten minutes: the lines of the README, as printed, in an empty environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# What each line of the README leads one to expect, with its exit status; another line fails.
EXPECTED = {
    "pip install .": ("", 0),
    "normlab identify torch.nn:GroupNorm": ("family: group_norm", 0),
    "normlab doctor torch.nn:TransformerEncoderLayer": ("2 norms: 2 understood", 1),
}


def read_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def without_sizes(text: str) -> str:
    """In one line, without the sizes of errors, which differ from processor to processor."""
    return re.sub(r"\(error [^)]*\)", "", " ".join(text.split()))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy, environment = Path(folder) / "normlab", Path(folder) / "environment"
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), copy], check=True)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        entered = kept | {"PATH": f"{environment / 'bin'}{os.pathsep}{kept['PATH']}"}

        def run(command: list[str], folder: Path, status: int = 0) -> str:
            began = time.monotonic()
            done = subprocess.run(command, cwd=folder, env=entered, capture_output=True, text=True)
            print(f"{time.monotonic() - began:6.1f} s  {command[-1].splitlines()[0]}")
            assert done.returncode == status, f"{command}\n{done.stdout}{done.stderr}"
            return done.stdout

        for line in "".join(read_blocks("shell")).splitlines():
            if line.startswith("#"):
                continue
            expected = [kept for start, kept in EXPECTED.items() if line.startswith(start)]
            assert expected, f"the README has a line that this script does not know: {line}"
            text, status = expected[0]
            printed = run(["bash", "-c", line], copy, status)
            assert text in printed, f"{line}\n{printed}"
        (code,), (_, output) = read_blocks("python"), read_blocks("text")
        printed = run(["python", "-c", code], Path(folder))
        assert without_sizes(printed) == without_sizes(output), printed
    print("the lines of the README do what it says")


if __name__ == "__main__":
    main()
