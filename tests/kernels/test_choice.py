"""The choice of a back end, and what happens where numba is missing or broken."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from normlab import kernels, layers
from normlab.kernels import choice


@pytest.mark.parametrize("name", ["composition", "chunked", "numba"])
def test_a_choice_holds_until_the_next(name: str) -> None:
    before = kernels.chosen()
    with kernels.use("composition"):
        kernels.use(name)
        assert kernels.chosen() == name
    assert kernels.chosen() == before


def test_nested_choices_are_taken_back() -> None:
    with kernels.use("chunked"):
        with kernels.use("composition"):
            assert choice.backend() is None
        assert kernels.chosen() == "chunked"


def test_auto_is_the_fastest() -> None:
    with kernels.use("auto"):
        assert kernels.chosen() == kernels.available()[-1] == "numba"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="name: got 'cuda'; expected one of auto, composition"):
        kernels.use("cuda")


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("from normlab import kernels; print(kernels.chosen())", NORMLAB_KERNELS="chunked")
    assert done.stdout.split() == ["chunked"], done.stderr
    for name in ("composition", "numba", "auto"):  # as the process above read it, without one each
        monkeypatch.setenv("NORMLAB_KERNELS", name)
        assert choice._from_environment() == name


def test_a_wrong_environment_is_refused() -> None:
    done = run("from normlab import kernels; kernels.chosen()", NORMLAB_KERNELS="fast")
    assert "NORMLAB_KERNELS: got 'fast'; expected one of" in done.stderr


WITHOUT = """
import sys
sys.modules["numba"] = None
import torch
from normlab import kernels, layers
x = torch.randn(6, 8)
assert kernels.available() == ("composition", "chunked")
assert kernels.chosen() == "chunked"
layers.layer_norm(x.requires_grad_(), (8,)).square().sum().backward()
try:
    kernels.use("numba")
except ImportError as error:
    print(error)
"""


def test_without_numba_all_works_and_an_explicit_choice_says_what_is_missing() -> None:
    done = run(WITHOUT)
    assert done.returncode == 0, done.stderr
    assert "numba is not installed; install it with pip install 'normlab[kernels]'" in done.stdout
    assert done.stderr == ""


BROKEN = """
import sys, warnings
import torch
from normlab import kernels, layers
{break_it}
x = torch.randn(6, 8)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(2):
        y = layers.layer_norm(x, (8,))
torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (8,)))
print(kernels.chosen(), len(said), said[0].message if said else "")
"""


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        ("import llvmlite; sys.modules['llvmlite.ir'] = None", "cannot be imported"),
        (
            "from numba.core import caching\n"
            "def load(*_): raise EOFError('Ran out of input')\n"
            "caching.FunctionCache.load_overload = load",
            "EOFError: Ran out of input",
        ),
        (
            "from normlab.kernels.vectorized import vectors\n"
            "def fail(*_): raise RuntimeError('no such instruction')\n"
            "vectors._splat = fail\n"
            "import os; from numba.core import caching\n"
            "caching.FunctionCache.load_overload = lambda *_: None",
            "no such instruction",
        ),
    ],
    ids=["import", "cache", "processor"],
)
def test_a_broken_numba_is_left_and_named(break_it: str, reason: str) -> None:
    done = run(BROKEN.format(break_it=break_it))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("chunked 1 numba does not work"), done.stdout
    assert reason in done.stdout


HALVES = """
import torch
from normlab import kernels, layers
from normlab.kernels import vectorized
x = torch.randn(6, 8, dtype=torch.float16, requires_grad=True)
y = layers.layer_norm(x, (8,))
y.square().sum().backward()
torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (8,)))
print(kernels.chosen(), vectorized.LACKS)
"""


def test_a_processor_without_float16_leaves_it_to_the_chunked_kernels() -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("other processors have no such choice of features")
    done = run(HALVES, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="+sse2")
    assert done.returncode == 0, done.stderr  # it would have been killed by LLVM
    assert done.stdout.strip() == "numba (torch.float16,)"
    program = "from normlab.kernels import vectorized; print(vectorized.LACKS)"
    assert run(program, NUMBA_CPU_FEATURES="+sse2,+f16c").stdout.strip() == "()"


def test_kernels_are_compiled_anew_where_no_folder_can_be_written(tmp_path: Path) -> None:
    program = (
        "import warnings\nfrom numba.core import caching\n"
        "def refuse(*_): raise OSError('read-only')\n"
        "caching._CacheLocator.ensure_cache_path = refuse\n"
        "warnings.simplefilter('always')\n"
        "import torch\nfrom normlab import layers, kernels\n"
        "y = layers.rms_norm(torch.randn(3, 4), (4,))\nprint(kernels.chosen())"
    )
    done = run(program)
    assert done.stdout.split() == ["numba"], done.stderr
    assert "compiled kernels cannot be kept" in done.stderr


def test_the_cache_is_named_after_all_sources(tmp_path: Path) -> None:
    from normlab.kernels.vectorized import compiling

    folder = Path(compiling.__file__).parent
    for path in folder.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    before = compiling.folder_of(tmp_path)
    (tmp_path / "vectors.py").write_text("# changed")
    assert compiling.folder_of(tmp_path) != before


def test_wrong_arguments_are_the_composition_s_to_name(backend: str) -> None:
    with pytest.raises(layers.ShapeError, match="weight: got shape"):
        layers.layer_norm(torch.randn(3, 4), (4,), torch.ones(5))
    with pytest.raises(layers.DtypeError, match="input: got torch.int64"):
        layers.layer_norm(torch.ones(3, 4, dtype=torch.int64), (4,))
