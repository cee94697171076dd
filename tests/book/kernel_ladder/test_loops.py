"""The steps of the ladder: each right where it claims to be, and wrong one step before."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from normlab.book.bench import ladder as bench
from normlab.book.bench.ladder import STEPS, Step, find_errors, make_rows
from normlab.book.kernel_ladder import loops as ladder
from normlab.kernels import vectorized
from normlab.kernels.vectorized import compiling
from normlab.kernels.vectorized import rows as loops
from normlab.kernels.vectorized.vectors import LANES

ALLOWED = 1.5e-7  # of the largest value: two roundings of 2**-24 make 1.2e-7
SHAPES = [(2, 5), (6, 33), (40, 100), (300, 768)]
RAISED = ("corrected", "streamed", "ahead", "blocks", "side by side")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_each_step_is_a_layer_norm(name: str, shape: tuple[int, int]) -> None:
    errors = find_errors(STEPS[name], make_rows(shape, "float32"))
    assert max(errors.values()) < 3e-6, errors


@pytest.mark.parametrize("name", [n for n in STEPS if n != "loop"])
def test_each_step_takes_bfloat16(name: str) -> None:
    errors = find_errors(STEPS[name], make_rows((40, 100), "bfloat16"))
    assert errors["y"] < 2**-8 and errors["dx"] < 2**-8, errors


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
@pytest.mark.parametrize("name", RAISED)
def test_from_the_corrected_mean_on_no_digit_goes(name: str, offset: float) -> None:
    errors = find_errors(STEPS[name], make_rows((512, 768), "float32", offset))
    assert errors["y"] < ALLOWED and errors["dx"] < ALLOWED, errors


@pytest.mark.parametrize("name", ["loop", "lanes"])
def test_before_the_correction_digits_go(name: str) -> None:
    errors = find_errors(STEPS[name], make_rows((512, 768), "float32", 1e4))
    assert errors["y"] > 100 * ALLOWED and errors["dx"] > 10 * ALLOWED, errors


def test_blocks_keep_the_weights_gradients() -> None:
    rows = make_rows((8192, 64), "float32")
    for name in ("blocks", "side by side"):
        errors = find_errors(STEPS[name], rows)
        assert max(errors["dweight"], errors["dbias"]) < ALLOWED, errors
    for name in ("loop", "lanes", "corrected", "streamed", "ahead"):
        errors = find_errors(STEPS[name], rows)
        assert min(errors["dweight"], errors["dbias"]) > 4 * ALLOWED, errors


def test_a_step_that_only_moves_bytes_changes_no_bit() -> None:
    rows = make_rows((64, 96), "float32")
    found = {name: [t.clone() for t in rows.run(STEPS[name])] for name in RAISED}
    for name in ("streamed", "ahead"):
        for a, b in zip(found["corrected"], found[name], strict=True):
            assert torch.equal(a, b), name
    assert not torch.equal(found["ahead"][2], found["blocks"][2])


def test_the_last_step_is_the_back_end() -> None:
    rows = make_rows((64, 96), "bfloat16", 3.0)
    y, dx, dweight, dbias = rows.run(STEPS["blocks"])
    ours, stats = vectorized.layer_norm(rows.x, rows.weight, rows.bias, 96, 1e-5)
    needs = (True, True, True)
    gradients = vectorized.layer_norm_backward(rows.dy, rows.x, stats, rows.weight, needs, 96, 1e-5)
    assert torch.equal(y, ours) and torch.equal(dx, gradients[0])
    for ours, theirs in zip((dweight, dbias), gradients[1:], strict=True):
        assert theirs is not None
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6 * float(theirs.abs().max()))


def test_rounding_halves_the_error_of_cutting() -> None:
    rows = make_rows((64, 768), "float32")
    y = rows.run(STEPS["blocks"])[0].clone()
    cut = (y.view(torch.int32) & ~0xFFFF).view(torch.float32)
    half = make_rows((64, 768), "float32")
    half.x = half.x.bfloat16()
    shorter = bench.Rows(half.x, rows.weight, rows.bias, rows.dy.bfloat16())
    rounded = shorter.run(STEPS["blocks"])[0]
    exact = torch.nn.functional.layer_norm(
        half.x.double(), (768,), rows.weight.double(), rows.bias.double(), 1e-5
    )
    assert torch.equal(rounded, exact.to(torch.bfloat16)) or (
        (rounded == exact.to(torch.bfloat16)).double().mean() > 0.999
    )
    away = ((cut - y) / y).abs().max()
    assert away > 0.9 * 2**-7 > 1.5 * ((y.bfloat16().float() - y) / y).abs().max()


def test_rounding_is_that_of_torch() -> None:
    values = torch.tensor([1.0, -1.00390625, 1.01171875, 3e38, float("inf"), float("nan"), 0.0])
    x = torch.cat([values, torch.randn(200, generator=torch.Generator().manual_seed(0))])
    y, size = torch.empty(len(x), dtype=torch.bfloat16), len(x)
    found = _narrowed(x, y, size)
    assert torch.equal(found.nan_to_num(7.0), x.bfloat16().nan_to_num(7.0))


def _narrowed(x: Tensor, y: Tensor, size: int) -> Tensor:
    """By the loop of the short norm of one value: its y is the bias, rounded."""
    zeros, stats = torch.zeros(size, dtype=torch.bfloat16), torch.empty(3, 1)
    weight = torch.zeros(size)
    loops.layer_norm(
        bench.KINDS[torch.bfloat16], zeros.data_ptr(), y.data_ptr(), stats.data_ptr(), 1,
        weight.data_ptr(), x.data_ptr(), 0, 1, size, 1e-5, False,
    )  # fmt: skip
    return y


def test_a_wrong_step_is_seen() -> None:
    step = STEPS["blocks"]

    def uncorrected(*arguments: object) -> None:
        step.forward(*arguments)
        rows.stats[1] = 0

    rows = make_rows((64, 96), "float32", 1e4)
    errors = find_errors(Step(uncorrected, step.backward, True, True), rows)
    assert errors["dx"] > 10 * ALLOWED


def test_vectors_cover_a_range_once() -> None:
    for first, last in ((0, 0), (0, 5), (0, LANES), (3, 3 + 2 * LANES), (7, 100)):
        covered = [i + j for i, k in compiling.vectors(first, last) for j in range(k)]
        assert covered == list(range(first, last))
    assert list(compiling.vectors(5)) == [(0, 5)]


def test_a_record_has_a_control_and_all_steps() -> None:
    found = bench.measure_case((64, 64), "float32", rounds=5)
    assert {*STEPS, "torch", "copy", "streamed copy"} < set(found["ratio"])
    assert found["ratio"]["torch"][0] == 1 and found["control"] >= 0
    short = bench.measure_case((64, 64), bench.INTEGERS, rounds=5)
    others = {"torch", "torch again", "composition", "called"}
    assert set(short["ratio"]) - others == {"blocks", "copy", "streamed copy"}


def test_arithmetic_in_the_cache_takes_less_than_a_call() -> None:
    found = bench.measure_in_cache("bfloat16", rounds=5)
    assert 0.01 < found["forward"] < 50 and 0.01 < found["backward"] < 50


def test_the_differences_on_the_page_are_lines_of_the_steps() -> None:
    page = Path(__file__).resolve().parents[3] / "book" / "fast_norms.ipynb"
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    blocks = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    sources = (Path(module.__file__).read_text(encoding="utf-8") for module in (ladder, loops))
    lines = {line.strip() for source in sources for line in source.splitlines()}
    assert len(blocks) == 2  # the lanes, and the stores past the cache
    assert {line[1:].strip() for block in blocks for line in block.splitlines()} <= lines
