"""The records of times as the chapter reads them."""

import json
from pathlib import Path

import numpy as np
import pytest

from normlab.book.experiments.fast_norms.gpu import LARGE, SHAPES, collect
from normlab.book.experiments.fast_norms.limits import PASSED, Limits, place
from normlab.book.experiments.fast_norms.steps import SHAPES as SHAPES_OF_STEPS
from normlab.book.experiments.fast_norms.steps import TRIED, Steps, span
from normlab.book.experiments.fast_norms.times import Record, Times

PATH = Path(__file__).resolve().parents[3] / "book" / "_data" / "kernel_times.json"
LAUNCHED = PATH.with_name("gpu_kernel_times.json")
REPLAYED = PATH.with_name("gpu_kernel_times_graphs.json")
LADDER = PATH.with_name("kernel_ladder.json")
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


def test_cases_in_which_a_variant_is_slower():
    record = Record(PATH)
    found = record.slower("numba")
    assert (
        found["layer_norm float32 8 x 16"]
        == record.find("layer_norm", "float32", 8, 16).ratio["numba"]
    )
    assert min(found.values()) > 1 and "layer_norm float32 4,096 x 768" not in found
    assert "layer_norm float32 4,096 x 768" in record.slower("composition")


def test_a_pass_is_found_and_another_is_not_taken_for_it():
    record = Record(LAUNCHED)
    case = "layer_norm", "float32", 8192, 8192
    forward, backward, both = (
        record.find(*case, which=which) for which in ("forward", "backward", "both")
    )
    assert both == record.find(*case)
    assert forward.milliseconds < backward.milliseconds < both.milliseconds
    with pytest.raises(KeyError, match="backward; the record concludes nothing"):
        Record(REPLAYED).find(*case, which="backward")


def test_device_peak_and_launches_of_a_gpu():
    launched, replayed = Record(LAUNCHED), Record(REPLAYED)
    assert launched.device == replayed.device == "NVIDIA H100 80GB HBM3"
    assert launched.machine.startswith(launched.device) and "Triton" in launched.machine
    assert "EPYC" in Record(PATH).device and "thread" in Record(PATH).machine
    at = "rms_norm", "bfloat16", 32768, 1024
    found = launched.find(*at)
    assert set(found.peak) == set(found.ratio) - {"copy"}
    assert 2 <= found.peak["torch"] < found.peak["triton"] < 2.4 < found.peak["composition"]
    assert set(found.launches) == set(found.ratio)
    assert found.launches["triton"] > 0.9 > found.launches["composition"]
    assert not replayed.find(*at).launches and replayed.find(*at).copy_rate > 2e12
    assert Record(PATH).find("layer_norm", "float32", 8, 16).peak["numba"] > 0


def test_a_number_for_each_case_of_the_gpu():
    record = Record(REPLAYED)
    found = collect(record, "ratio", "triton", shapes=LARGE)
    assert len(found) == 4 * len(LARGE) and len(collect(record, "ratio", "triton")) == 16
    case = "layer_norm", "bfloat16", (32768, 1024)
    assert found[case] == record.find("layer_norm", "bfloat16", 32768, 1024).ratio["triton"]
    forward = collect(record, "milliseconds", "Liger", which="forward")
    assert all(forward[c] < collect(record, "milliseconds", "Liger")[c] for c in forward)
    with pytest.raises(KeyError, match="numba"):
        collect(record, "ratio", "numba")


def test_without_launches_a_copy_is_the_limit_on_a_gpu():
    record = Record(REPLAYED)
    percents = collect(record, "percent_of_copy", "triton", shapes=LARGE).values()
    ratios = collect(record, "ratio", "triton", shapes=LARGE).values()
    assert min(percents) > 83 and max(percents) < 96
    assert min(ratios) > 0.45 and max(ratios) < 0.63
    small = collect(record, "percent_of_copy", "triton", shapes=SHAPES[:1]).values()
    assert min(small) > 43 and max(small) < 67
    liger = collect(record, "ratio", "Liger", shapes=LARGE)
    assert 0.51 < min(liger.values()) < 0.52 and 1.2 < max(liger.values()) < 1.23
    assert liger["layer_norm", "float32", (8192, 8192)] < min(
        record.find("layer_norm", "float32", 8192, 8192).interval["triton"]
    )
    composed = collect(record, "ratio", "composition", shapes=LARGE).values()
    assert 3.2 < min(composed) < 3.3 and 13.6 < max(composed) < 13.8
    forward = collect(record, "percent_of_copy", "triton", shapes=LARGE, which="forward")
    assert min(forward.values()) > 96


def test_from_python_launches_are_the_limit_on_a_gpu():
    record = Record(LAUNCHED)
    ours = collect(record, "milliseconds", "triton")
    assert min(ours.values()) > 0.49 and max(ours.values()) < 0.72
    assert min(collect(record, "launches", "triton").values()) > 0.98
    faster = {case for case, ratio in collect(record, "ratio", "triton").items() if ratio < 1}
    assert faster == {
        (norm, "float32", shape) for norm in ("layer_norm", "rms_norm") for shape in SHAPES[2:]
    }
    found = record.find("rms_norm", "bfloat16", 32768, 1024).ratio
    assert found["triton"] == pytest.approx(2.67, abs=0.01)
    assert found["Liger"] == pytest.approx(3.09, abs=0.01)


def test_a_norm_at_the_speed_of_a_copy_lies_on_the_roof():
    rate, values = 40e9, 1 << 20  # bytes a second
    times = Times(1e3 * PASSED * 4 * values / rate, {"torch": 1.0, "half": 2.0}, {}, {})
    found = place(times, values, {"torch": PASSED, "half": 2 * PASSED})
    for name, factor in (("torch", 1), ("half", 2)):
        intensity, operations = found[name]
        assert intensity == pytest.approx(1 / factor)
        assert operations == pytest.approx(intensity * rate)


def test_the_recorded_steps_rise():
    steps = Steps(LADDER)
    for shape in SHAPES_OF_STEPS:
        for dtype in ("float32", "bfloat16"):
            percents = [steps.percent(step, dtype, shape) for step in ("lanes", "blocks")]
            assert min(percents) > 0 and percents[-1] < 110
        assert steps.ratio("loop", "float32", shape) > 1.5 > 1 > steps.ratio("lanes", *at(shape))
        assert steps.ratio("blocks", *at(shape)) < 0.75
        assert steps.ratio("torch", *at(shape)) == 1
        assert steps.percent("streamed copy", *at(shape)) == pytest.approx(100)
    milliseconds = 1e-6 * steps.nanoseconds("torch", *at((4096, 768))) * 4096 * 768
    assert 1 < milliseconds < 20
    assert 0.1 < steps.in_cache("float32") < steps.nanoseconds("blocks", *at((4096, 768)))


def test_a_gain_is_over_the_step_before():
    steps = Steps(LADDER)
    assert np.isnan(steps.gains("loop")).all() and np.isnan(steps.gains("lanes")[3:]).all()
    assert max(steps.gains("lanes")[:3]) < 0.5 and max(steps.gains("streamed")[:3]) < 0.9
    product = np.prod([steps.gains(step) for step in TRIED[1:-1]], axis=0)
    for i, shape in enumerate(SHAPES_OF_STEPS):
        whole = steps.ratio("blocks", *at(shape)) / steps.ratio("loop", *at(shape))
        assert product[i] == pytest.approx(whole)
    left = steps.ratio("side by side", "bfloat16", SHAPES_OF_STEPS[2])
    kept = steps.ratio("blocks", "bfloat16", SHAPES_OF_STEPS[2])
    assert steps.gains("side by side")[5] == pytest.approx(left / kept)


def test_a_span_of_numbers():
    assert span([0.5, 0.25, 0.3]) == "0.25 to 0.50" and span([1.0, 1.04], 1) == "1.0"


def test_a_step_whose_control_was_off_is_not_given(tmp_path):
    record = json.loads(LADDER.read_text(encoding="utf-8"))
    record["cases"][0]["control"] = 0.2
    (tmp_path / "ladder.json").write_text(json.dumps(record), encoding="utf-8")
    case = record["cases"][0]
    with pytest.raises(KeyError, match="concludes nothing about it"):
        Steps(tmp_path / "ladder.json").ratio("loop", case["dtype"], tuple(case["shape"]))


def at(shape):
    return "float32", shape


def test_shares_are_percents_and_bad_controls_are_not_given(tmp_path):
    assert 0 < Limits(LIMITS).share(1024)["torch"] < Limits(LIMITS).share(64)["torch"] < 100
    path = tmp_path / "limits.json"
    path.write_text('{"shares": [{"width": 8, "control": 0.2, "share": {"torch": 0.5}}]}')
    with pytest.raises(KeyError, match="width: got 8"):
        Limits(path).share(8)
