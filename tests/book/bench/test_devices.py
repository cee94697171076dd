"""The bench on a GPU, as far as it shows without one: clock, names, counters and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from normlab import kernels, layers
from normlab.book.bench import Case, devices, run_case, variants
from normlab.book.bench.__main__ import SHAPES, main
from normlab.book.bench.cases import count_peak, count_saved
from normlab.book.bench.devices import held_after, launch_share, peak_during, waiting_clock
from normlab.book.bench.timing import measure
from normlab.book.bench.variants import copied, functions, make_variants, modules
from normlab.kernels.differentiation import Kernels

LARGEST = 64


class Gpu:
    """Calls return after they are launched; the work is done later, one after another."""

    def __init__(self, launch: float = 1e-6) -> None:
        self.now = self.free = 0.0
        self.launch = launch
        self.held = self.peak = 0

    def taking(self, seconds: float) -> Callable[[], None]:
        def call() -> None:
            self.now += self.launch
            self.free = max(self.free, self.now) + seconds

        return call

    def wait(self) -> None:
        self.now = max(self.now, self.free)

    def clock(self) -> float:
        return self.now

    def allocate(self, count: int) -> None:
        self.held += count
        self.peak = max(self.peak, self.held)

    def forget_peak(self) -> None:
        self.peak = self.held


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """torch.cuda on a GPU that is not there; what is computed on it is computed here."""
    found = Gpu()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", found.wait)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: found.held)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: found.peak)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", found.forget_peak)
    properties = SimpleNamespace(
        name="Test GPU", total_memory=80 << 30, L2_cache_size=50 << 20, multi_processor_count=132
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    known = Kernels("triton", "cuda", ModuleType("layer_norm"), largest=LARGEST)
    known.module.layer_norm = known.module.rms_norm = None
    triton = SimpleNamespace(kernels=lambda: known, layer_norm=F.layer_norm, rms_norm=F.rms_norm)
    # without numba, whose compiling takes long
    monkeypatch.setattr(kernels, "backends", lambda: {"triton": triton})
    made = Case.tensors

    def here(case: Case, seed: int = 0) -> Any:
        return made(Case(case.norm, case.dtype, case.shape, case.which), seed)

    monkeypatch.setattr(Case, "tensors", here)
    return found


def test_a_clock_that_waits_sees_the_work_and_one_that_does_not_the_launch() -> None:
    gpu = Gpu()
    calls = {"a": gpu.taking(1e-3), "b": gpu.taking(2e-3)}
    times = measure(calls, rounds=5, block=2e-2, clock=waiting_clock(gpu.wait, gpu.clock))
    assert times["a"] == pytest.approx([1e-3] * 5, rel=0.01)
    assert times["b"] == pytest.approx([2e-3] * 5, rel=0.01)
    wrong = measure(calls, rounds=5, block=2e-5, clock=gpu.clock)
    assert [*wrong["a"], *wrong["b"]] == pytest.approx([1e-6] * 10)


@pytest.mark.parametrize(("work", "launch", "share"), [(1e-3, 1e-5, 0.01), (1e-6, 1e-5, 1.0)])
def test_launches_are_told_from_work(work: float, launch: float, share: float) -> None:
    gpu = Gpu(launch)
    clock = waiting_clock(gpu.wait, gpu.clock)
    found = launch_share(gpu.taking(work), clock=clock, now=gpu.clock)
    assert found == pytest.approx(share, abs=0.02)


def test_memory_is_that_of_the_counters(gpu: Gpu) -> None:
    gpu.allocate(1000)  # what others hold

    def call() -> str:
        gpu.allocate(700)
        gpu.allocate(-600)
        return "result"

    assert peak_during(call) == 700
    assert held_after(call) == (100, "result")


def test_saved_and_peak_are_multiples_of_the_input(gpu: Gpu) -> None:
    case = Case("layer_norm", "float32", (4, 32), device="cuda")

    def function(x: Tensor, *_: Tensor) -> Tensor:
        gpu.allocate(3 * x.nbytes)  # the result, and twice its size for backward
        return x.exp() + sum(p.sum() for p in _)

    assert count_saved(case, function) == pytest.approx(2)
    assert count_peak(case, function) == pytest.approx(3)


def test_triton_is_named_where_it_knows_the_case(gpu: Gpu) -> None:
    def names(norm: str, *shape: int) -> list[str]:
        return list(functions(Case(norm, "float32", shape, device="cuda")))

    assert names("layer_norm", 8, LARGEST) == ["composition", "triton"]
    assert names("layer_norm", 8, LARGEST + 1) == ["composition"]  # rows that do not fit
    assert names("batch_norm", 8, 4) == ["composition"]
    assert names("add_rms_norm", 8, 16) == ["composition", "triton, two calls"]
    assert "triton" not in functions(Case("layer_norm", "float32", (8, 16)))


def test_without_triton_the_composition_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "backends", dict)
    case = Case("layer_norm", "float32", (8, 16), device="cuda")
    assert modules(case) == {"composition": layers}


def test_inputs_take_turns_on_a_gpu_only(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    seen: list[float] = []

    def function(x: Tensor, *_: Tensor) -> Tensor:
        seen.append(float(x[0, 0]))
        return x

    monkeypatch.setattr(variants, "copies_of", lambda count, device: 3 if device == "cuda" else 1)
    for device, different in (("cuda", 3), ("cpu", 1)):
        seen.clear()
        case = Case("layer_norm", "float32", (4, 8), "forward", device)
        call = variants.make_call(case, variants.Variant(function))
        for _ in range(6):
            call()
        assert len(set(seen)) == different and seen[:3] == seen[3:]


def test_the_largest_shapes_are_past_the_cache() -> None:
    for shape in SHAPES["cuda"]["shape"][1:]:
        case = Case("layer_norm", "bfloat16", (*map(int, shape.split("x")),))
        cache = 50 << 20
        assert 2 * case.bytes * devices.copies_of(case.bytes, "cuda", cache) >= 4 * cache


@pytest.mark.parametrize(
    ("norm", "which", "tensors"),
    [("layer_norm", "forward", 2), ("layer_norm", "both", 5), ("add_rms_norm", "both", 8)],
)
def test_bytes_of_a_copy(norm: str, which: str, tensors: int) -> None:
    assert copied(Case(norm, "bfloat16", (4, 8), which)) == tensors * 4 * 8 * 2


def test_without_a_gpu_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stopped:
        main(["--device", "cuda"])
    assert stopped.value.code == 2
    assert "got 'cuda', and torch" in capsys.readouterr().err


def test_the_command_on_a_gpu(
    gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in that computes on the processor: what runs, under which names."""
    monkeypatch.setattr(devices, "_MOST_COPIES", 2)
    monkeypatch.setitem(devices.BLOCKS, "cuda", 1e-3)
    path = tmp_path / "times.json"
    options = ["--norms", "rms_norm", "--shapes", "16x32", "--rounds", "5", "--device", "cuda"]
    main([*options, "--json", str(path)])
    record = json.loads(path.read_text())
    assert record["machine"]["gpu"] == "Test GPU" and record["machine"]["gpu cache"] == "50 MiB"
    assert {"torch", "cuda", "triton", "clock"} <= set(record["machine"])
    dtypes = [case["case"]["dtype"] for case in record["cases"]]
    assert dtypes == ["float32", "bfloat16", "float16"]
    for case in record["cases"]:
        assert case["case"]["device"] == "cuda" and case["copy_rate"] > 0
        assert [row["variant"] for row in case["rows"]] == ["composition", "triton", "copy"]
        assert all(row["launches"] is not None for row in case["rows"])
    assert "gpu: Test GPU" in capsys.readouterr().out


def test_others_that_fail_are_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from normlab.book.bench import reporting

    def broken(*_: Tensor) -> Tensor:
        raise RuntimeError("no compiler\nand more")

    def wrong(x: Tensor, *_: Tensor) -> Tensor:
        return x

    monkeypatch.setattr(kernels, "backends", dict)
    case = Case("layer_norm", "float32", (64, 32))
    made = {**functions(case), "broken": variants.Variant(broken), "wrong": variants.Variant(wrong)}
    monkeypatch.setattr(reporting, "functions", lambda *_, **__: made)
    report = run_case(case, rounds=5)
    assert report.left_out["broken"] == "RuntimeError: no compiler"
    assert "wrong is off by" in report.left_out["wrong"]
    assert "broken was left out: RuntimeError: no compiler" in str(report)
    assert not {"broken", "wrong"} & {row.variant for row in report.rows}
    made["broken"] = variants.Variant(broken, ours=True)
    with pytest.raises(RuntimeError, match="no compiler"):
        run_case(case, rounds=5)


def test_a_graph_of_each_input_is_replayed(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    replayed: list[object] = []

    def captured(call: Callable[[], object]) -> Callable[[], object]:
        found = call()
        return lambda: replayed.append(found)

    monkeypatch.setattr(variants, "captured", captured)
    monkeypatch.setattr(variants, "copies_of", lambda count, device: 3)
    case = Case("rms_norm", "float32", (4, 8), "forward", "cuda")
    for made in make_variants(case, graphs=True).values():
        replayed.clear()
        for _ in range(4):
            made()
        first, second, third, again = replayed
        assert first is again and first is not second is not third


def test_a_backward_pass_alone_is_not_recorded(
    capsys: pytest.CaptureFixture[str], gpu: Gpu
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--device", "cuda", "--graphs", "--passes", "forward", "backward"])
    assert "--graphs: a backward pass alone" in capsys.readouterr().err


def test_graphs_need_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--graphs"])
    assert "argument --graphs: got no GPU" in capsys.readouterr().err
