"""The record of times as the chapter reads it, and the uses that a norm survives."""

import json
from pathlib import Path

import pytest
import torch

from normlab.experiments.fast_norms import survival
from normlab.experiments.fast_norms.limits import PASSED, Limits, place
from normlab.experiments.fast_norms.times import Record, Times
from normlab.kernels.short import in_numba

# torch's own forward-mode machinery scripts its decompositions on first use.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning"),
]
PATH = Path(__file__).resolve().parents[2] / "book" / "_data" / "kernel_times.json"
LIMITS = PATH.with_name("machine_limits.json")


def test_a_case_is_found_with_torch_as_one():
    found = Record(PATH).find("layer_norm", "float32", 4096, 768)
    assert found.ratio["torch"] == 1 and found.of("torch") == found.milliseconds
    assert found.percent_of_copy["copy"] == pytest.approx(100)
    low, high = found.interval["composition"]
    assert low < found.ratio["composition"] < high and "torch" not in found.interval
    assert found.percent_of_copy["numba"] > found.percent_of_copy["composition"]


def test_what_was_not_concluded_is_not_given(tmp_path):
    record = json.loads(PATH.read_text(encoding="utf-8"))
    record["cases"][0]["conclusive"] = False
    (tmp_path / "times.json").write_text(json.dumps(record), encoding="utf-8")
    case = record["cases"][0]["case"]
    with pytest.raises(KeyError, match="concludes nothing about it"):
        Record(tmp_path / "times.json").find(case["norm"], case["dtype"], *case["shape"])


def test_router_and_composition_survive_everything():
    for norm in (survival.composition, survival.routed):
        assert set(survival.list_uses(norm).values()) == {"right"}


def test_a_bare_kernel_does_not():
    found = survival.list_uses(survival.bare_kernel)
    assert found["backward"] == "right"
    assert {found["vmap"], found["jvp"]} <= {"refused", "wrong"}


def test_a_wrong_norm_is_called_wrong():
    wrong = survival.list_uses(lambda x: x - x.mean(-1, keepdim=True))
    assert wrong["forward"] == wrong["backward"] == "wrong"
    assert isinstance(wrong, dict) and torch.is_grad_enabled()


def test_short_loops_agree_with_autograd():
    g = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(9, 50, generator=g) for _ in range(2))
    weight = 1.5 + 0.5 * torch.randn(50, generator=g)
    leaves = [t.double().requires_grad_() for t in (x, weight)]
    expected = torch.nn.functional.rms_norm(leaves[0], (50,), leaves[1], 1e-5)
    gradients = torch.autograd.grad(expected, leaves, dy.double())
    y, dx, rrms, dweight = (torch.zeros_like(t) for t in (x, x, x[:, 0], weight))
    x, weight, y, rrms, dy, dx, dweight = (t.numpy() for t in (x, weight, y, rrms, dy, dx, dweight))
    in_numba.rms_norm(x, weight, 1e-5, y, rrms)
    in_numba.rms_norm_backward(dy, x, weight, rrms, dx, dweight)
    for got, wanted in zip((y, dx, dweight), (expected.detach(), *gradients), strict=True):
        assert abs(got - wanted.numpy()).max() < 1e-6 * abs(wanted.numpy()).max()


def test_a_norm_at_the_speed_of_a_copy_lies_on_the_roof():
    limits = Limits(LIMITS)
    values = 1 << 20
    copied = PASSED * 4 * values / limits.bytes_per_second
    times = Times(1e3 * copied, {"torch": 1.0, "half": 2.0}, {}, {})
    found = place(times, values, {"torch": PASSED, "half": 2 * PASSED})
    for name, factor in (("torch", 1), ("half", 2)):
        intensity, rate = found[name]
        assert intensity == pytest.approx(1 / factor)
        assert rate == pytest.approx(intensity * limits.bytes_per_second)
    assert limits.operations_per_second / limits.bytes_per_second > 1  # the norm is left of it


def test_shares_are_percents_and_bad_controls_are_not_given(tmp_path):
    assert 0 < Limits(LIMITS).share(1024)["torch"] < Limits(LIMITS).share(64)["torch"] < 100
    path = tmp_path / "limits.json"
    path.write_text('{"shares": [{"width": 8, "control": 0.2, "share": {"torch": 0.5}}]}')
    with pytest.raises(KeyError, match="width: got 8"):
        Limits(path).share(8)
