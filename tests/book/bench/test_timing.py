"""The bench's arithmetic, on a clock of its own: no test here depends on how fast anything is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from normlab import kernels, layers
from normlab.book.bench import Case, count_peak, count_saved, limits, reporting, run_case
from normlab.book.bench.__main__ import main
from normlab.book.bench.cases import FUSED
from normlab.book.bench.limits import count_moved
from normlab.book.bench.timing import CONTROL, control_error, measure, paired_ratio
from normlab.kernels import numba_loops


class Machine:
    """A clock that calls advance, faster and slower as neighbors come and go."""

    def __init__(self, slowdown: Callable[[int], float] = lambda call: 1.0) -> None:
        self.now, self.calls, self.slowdown = 0.0, 0, slowdown

    def clock(self) -> float:
        return self.now

    def taking(self, seconds: float) -> Callable[[], None]:
        def call() -> None:
            self.calls += 1
            self.now += seconds * self.slowdown(self.calls)

        return call


def test_each_variant_runs_once_a_round() -> None:
    machine = Machine()
    variants = {"a": machine.taking(1.0), "b": machine.taking(2.0)}
    times = measure(variants, rounds=7, clock=machine.clock)
    assert times == {"a": [1.0] * 7, "b": [2.0] * 7}
    assert paired_ratio(times["b"], times["a"]) == (2.0, 2.0, 2.0)


def test_short_calls_are_repeated() -> None:
    machine = Machine()
    times = measure({"a": machine.taking(1e-4)}, rounds=5, block=4e-3, clock=machine.clock)
    assert machine.calls == pytest.approx(3 + 5 * 40, abs=5)
    assert times["a"] == pytest.approx([1e-4] * 5)


def test_pairing_survives_a_machine_that_becomes_slower() -> None:
    machine = Machine(lambda call: 1 + call / 10)
    names = {"torch": 1.0, CONTROL: 1.0, "twice": 2.0}
    variants = {name: machine.taking(seconds) for name, seconds in names.items()}
    times = measure(variants, rounds=41, clock=machine.clock)
    paired = paired_ratio(times["twice"], times["torch"])
    assert paired.low <= 2.0 <= paired.high
    assert control_error(times, "torch") < 0.1
    one_after_another = Machine(lambda call: 1 + call / 10)
    first = [one_after_another.clock() for _ in range(41) if not one_after_another.taking(1.0)()]
    assert first[-1] - first[-2] > 3 * (first[1] - first[0])  # the wrong way sees the neighbors


@pytest.mark.parametrize("n", [5, 15, 41])
def test_the_interval_holds_the_median(n: int) -> None:
    rng = random.Random(0)
    held = 0
    for _ in range(400):
        ratio = paired_ratio([rng.gauss(1.0, 0.1) for _ in range(n)], [1.0] * n)
        held += ratio.low <= 1.0 <= ratio.high
    assert held >= 0.93 * 400
    assert n == 5 or held < 400  # an interval that is never wrong would be too wide


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds: got 3"):
        measure({"a": lambda: None}, rounds=3)


CASE = Case("layer_norm", "float32", (64, 32))


def test_a_bad_control_concludes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    costs = {"torch": 1.0, CONTROL: 1.2, "numba": 0.5, "copy": 0.1}
    made = {name: machine.taking(seconds) for name, seconds in costs.items()}
    monkeypatch.setattr(reporting, "make_variants", lambda *_, **__: made)
    monkeypatch.setattr(reporting, "clock_of", lambda _: machine.clock)
    report = run_case(CASE, rounds=5)
    assert not report.conclusive
    assert all(row.ratio is None for row in report.rows)
    assert "control off by 20.0%: more than 10%, so nothing can be concluded" in str(report)
    costs[CONTROL] = 1.05
    made[CONTROL] = machine.taking(1.05)
    report = run_case(CASE, rounds=5)
    assert report.conclusive
    assert {row.variant: row.ratio for row in report.rows}["numba"] == pytest.approx(0.5)


def test_a_wrong_variant_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = numba_loops.layer_norm
    monkeypatch.setattr(numba_loops, "layer_norm", lambda *a, **k: right(*a, **k) * 1.001)
    with pytest.raises(ArithmeticError, match="numba is off by"):
        run_case(CASE, rounds=5)


def test_memory_is_counted() -> None:
    """Multiples of the input: the composition saves two of its size, a kernel three per row."""
    case = Case("layer_norm", "float32", (64, 512))
    layer, kernel = case.bound(layers), case.bound(numba_loops)
    assert count_saved(case, layer) == pytest.approx(2.0, abs=0.05)
    assert count_saved(case, kernel) == pytest.approx(3 / 512, rel=0.01)
    assert count_peak(case, layer) > 6
    assert 2.0 <= count_peak(case, kernel) < 2.3


def test_the_command_writes_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "times.json"
    main(["--norms", "rms_norm", "--shapes", "16x32", "--rounds", "5", "--json", str(path)])
    record = json.loads(path.read_text())
    assert record["machine"]["processor"]
    assert record["cases"][0]["case"]["shape"] == [16, 32]
    assert "allocator: MALLOC_MMAP_MAX_=" in capsys.readouterr().out


def test_the_record_names_its_processor_and_concludes_nothing_from_a_bad_control() -> None:
    path = Path(__file__).resolve().parents[3] / "book" / "_data" / "kernel_times.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["machine"]["processor"]
    assert {case["case"]["norm"] for case in record["cases"]} >= {"layer_norm", "rms_norm"}
    for case in record["cases"]:
        assert case["conclusive"] == (case["control"] <= 0.10)
        assert case["conclusive"] == all(row["ratio"] is not None for row in case["rows"])


def test_bytes_that_operators_move() -> None:
    case = Case("layer_norm", "float32", (64, 512))
    assert count_moved(case, case.bound(F)) == pytest.approx(5, abs=0.2)
    assert count_moved(case, case.bound(layers)) > 8 * 5


def test_limits_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        limits,
        "measure",
        lambda variants, rounds: {
            name: [0.5 if name == "block" else 0.1] * rounds for name in variants
        },
    )
    share = limits.measure_share(32, rounds=5)["share"]
    assert share["torch"] == pytest.approx(2 * 0.1 / 0.5) and "block" not in share


@pytest.mark.parametrize("norm", FUSED)
def test_a_norm_with_its_neighbor_is_two_calls_of_torch(norm: str) -> None:
    """In value and gradients; and one call of ours keeps nothing of the input's size beside it."""
    case = Case(norm, "float32", (24, 64))
    assert case.alone in norm and case.alone.count("_") == 1
    tensors, dy = case.tensors()
    results = []
    for module in (F, kernels):
        found = case.bound(module)(*tensors)
        results.append([found[0].detach(), *torch.autograd.grad(found, tensors, (dy, dy))])
    for theirs, mine in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=2e-5)
    assert count_saved(case, case.bound(kernels)) < 0.1
    assert torch.equal(results[0][1], results[0][2])  # the sum passes its gradient to both


def test_the_command_times_it_beside_two_calls(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    main(["--norms", "add_layer_norm", "--shapes", "16x32", "--rounds", "5", "--json", str(path)])
    (case,) = json.loads(path.read_text())["cases"]
    assert {row["variant"] for row in case["rows"]} >= {"composition", "numba", "numba, two calls"}
