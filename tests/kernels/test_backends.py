"""Back ends by themselves, the choice of the fastest, and a numba that is missing or broken."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from calls import Call, batch, gradients, group, instance, layer, rms

from normlab import kernels, layers
from normlab.kernels import choice, numba_loops, triton_rows

ONE_EACH = [layer(6, 40), rms(6, 40), batch(6, 4, 10), group(2, 6, 4, 10), instance(6, 4, 10)]


def test_the_fastest_comes_first() -> None:
    found = kernels.backends()
    assert list(found)[-1] == "numba" and found["numba"] is numba_loops
    assert ("triton" in found) == torch.cuda.is_available()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert choice.find("cpu", dtype) is numba_loops.kernels()
    assert choice.find("cpu", torch.float64) is choice.find("meta", dtype) is None


@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_a_back_end_is_its_layer(call: Call) -> None:
    def by_itself(*tensors: torch.Tensor) -> torch.Tensor:
        return call.by(numba_loops, *tensors)

    tensors, dy = call.tensors()
    for got, expected in zip(
        gradients(by_itself, tensors, dy), gradients(call.layer, tensors, dy), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def wrong(call: Call, argument: str) -> list[Any]:
    """Tensors of a call of which one argument is not for kernels."""
    tensors, _ = call.tensors()
    at = {"input": 0, "weight": 1, "bias": 2}[argument]
    tensors[at] = tensors[at].double()
    return tensors


@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_what_a_back_end_does_not_know_is_named(call: Call) -> None:
    for argument in ("input", "weight", "bias")[: 3 if call.has_bias else 2]:
        with pytest.raises(NotImplementedError, match=rf"{argument}: got torch.float64 .* on cpu"):
            call.by(numba_loops, *wrong(call, argument))
    with pytest.raises(NotImplementedError, match="input: got .* on meta, .*normlab.kernels"):
        call.by(numba_loops, call.tensors()[0][0].to("meta"))
    with pytest.raises(NotImplementedError, match="no compiler, export, transform or mode"):
        torch.func.vmap(lambda x: call.by(numba_loops, x))(torch.ones(2, *call.shape))


def test_arguments_that_only_a_layer_knows_are_named() -> None:
    x, buffer = torch.randn(4, 6), torch.ones(6)
    for argument, call in {
        "normalized_shape: got .1,.": lambda: numba_loops.layer_norm(x[:, :1], (1,)),
        "eps: got 0.0": lambda: numba_loops.batch_norm(x, None, None, training=True, eps=0.0),
        "training: got False": lambda: numba_loops.batch_norm(x, buffer, buffer),
        "num_groups: got 6": lambda: numba_loops.group_norm(x, 6),
        "running_mean: got torch.float32": lambda: numba_loops.instance_norm(
            x[:, :, None].expand(4, 6, 3), buffer, buffer
        ),
    }.items():
        with pytest.raises(NotImplementedError, match=argument):
            call()


def test_triton_has_no_norm_of_channels() -> None:
    pytest.importorskip("triton", reason="Triton has no wheels for this platform")
    with pytest.raises(NotImplementedError, match="input: got torch.float32 .* on cpu, .*'triton'"):
        triton_rows.layer_norm(torch.ones(2, 4), (4,))
    assert not hasattr(triton_rows.kernels().module, "batch_norm")
    assert triton_rows.kernels().largest == 16384


# Imports torch once, and runs each program that it is sent in a fork of its own.
SERVER = """
import json, os, sys, tempfile, traceback
import torch

for line in sys.stdin:
    program, environment = json.loads(line)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            os.environ.update(environment)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            status = 1
            try:
                exec(program, {})
                status = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        print(json.dumps([status, out.read(), err.read()]), flush=True)
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[..., Done]]:
    """A program in a process that has imported nothing but torch."""
    command = [sys.executable, "-W", "error", "-c", SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:

        def ask(program: str, **environment: str) -> Done:
            assert server.stdin is not None and server.stdout is not None
            print(json.dumps([program, environment]), file=server.stdin, flush=True)
            return Done(*json.loads(server.stdout.readline()))

        yield ask


WITHOUT = """
import sys
sys.modules["numba"] = None
import torch
from normlab import kernels
x = torch.randn(64, 80)
assert not kernels.backends()
norm = lambda t: kernels.layer_norm(t, (80,))
norm(x.requires_grad_()).square().sum().backward()
compiled = torch.compile(norm, fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(x), norm(x))
try:
    kernels.numba_loops.layer_norm(x, (80,))
except ImportError as error:
    print(error)
"""


def test_without_numba_all_works_and_a_call_by_name_says_what_is_missing(
    run: Callable[..., Done],
) -> None:
    done = run(WITHOUT)
    assert done.returncode == 0, done.stderr
    assert "numba is not installed; install it with pip install 'normlab[kernels]'" in done.stdout
    assert done.stderr == ""


BROKEN = """
import sys, warnings
import torch
from normlab import kernels
{break_it}
x = torch.randn(64, 80)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(2):
        y = kernels.layer_norm(x, (80,))
torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (80,)))
print(len(kernels.backends()), len(said), said[0].message if said else "")
try:
    kernels.numba_loops.layer_norm(x, (80,))
except ImportError as error:
    print("ImportError", error)
"""


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        ("import llvmlite; sys.modules['llvmlite.ir'] = None", "ModuleNotFoundError: import of"),
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
def test_a_broken_numba_is_left_and_named(
    run: Callable[..., Done], break_it: str, reason: str
) -> None:
    done = run(BROKEN.format(break_it=break_it))
    assert done.returncode == 0, done.stderr
    warned, _, refused = done.stdout.partition("ImportError ")
    assert warned.startswith("0 1 numba is installed and does not work here"), done.stdout
    assert reason in warned and reason in refused
    assert "normlab.kernels calls the layers without it" in refused


def test_a_kernel_that_fails_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them, in a process in which others work: no other kernel is taken in silence."""

    def fail(*_: object) -> None:
        raise EOFError("Ran out of input")

    monkeypatch.setattr(numba_loops.kernels().module, "rms_norm", fail)
    with pytest.raises(EOFError) as raised:
        kernels.rms_norm(torch.ones(2, 4), (4,))
    (note,) = raised.value.__notes__
    assert "raised in rms_norm of the back end 'numba'" in note and "may be deleted" in note
    assert torch.equal(kernels.layer_norm(torch.ones(2, 4), (4,)), torch.zeros(2, 4))


HALVES = """
import torch
from normlab import kernels
from normlab.kernels import choice
x = torch.randn(64, 80, dtype=torch.float16, requires_grad=True)
y = kernels.layer_norm(x, (80,))
compiled = torch.compile(lambda t: kernels.layer_norm(t, (80,)), fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(x), y)
y.square().sum().backward()
torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (80,)))
print(*(choice.find("cpu", t) is None for t in (torch.float32, torch.float16)))
"""


def test_a_processor_without_float16_leaves_it_to_the_layer(run: Callable[..., Done]) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("other processors have no such choice of features")
    done = run(HALVES, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="+sse2")
    assert done.returncode == 0, done.stderr  # it would have been killed by LLVM
    assert done.stdout.split() == ["False", "True"]
    program = "from normlab.kernels import vectorized; print(len(vectorized.DTYPES))"
    assert run(program, NUMBA_CPU_FEATURES="+sse2,+f16c").stdout.strip() == "3"


def test_kernels_are_compiled_anew_where_no_folder_can_be_written(
    run: Callable[..., Done],
) -> None:
    program = (
        "import warnings\nfrom numba.core import caching\n"
        "def refuse(*_): raise OSError('read-only')\n"
        "caching._CacheLocator.ensure_cache_path = refuse\n"
        "warnings.simplefilter('always')\n"
        "from normlab import kernels\n"
        "print(*kernels.backends())"  # which compiles one loop, and asks what it gives
    )
    done = run(program)
    assert done.stdout.split()[-1] == "numba", done.stderr
    assert "compiled kernels cannot be kept" in done.stderr


def test_the_cache_is_named_after_all_sources(tmp_path: Path) -> None:
    from normlab.kernels.vectorized import compiling

    folder = Path(compiling.__file__).parent
    for path in folder.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    before = compiling.folder_of(tmp_path)
    (tmp_path / "vectors.py").write_text("# changed")
    assert compiling.folder_of(tmp_path) != before


def test_layers_know_no_kernel() -> None:
    """What they import is asked in a process of its own, in `test_architecture`."""
    assert not hasattr(layers.layer_norm, "__wrapped__")
