"""The record of times as the chapter reads it, and the uses that a norm survives."""

from pathlib import Path

import pytest
import torch

from normlab.experiments.fast_norms import survival
from normlab.experiments.fast_norms.times import Record

# torch's own forward-mode machinery scripts its decompositions on first use.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning"),
]
PATH = Path(__file__).resolve().parents[2] / "book" / "_data" / "kernel_times.json"


def test_a_case_is_found_with_torch_as_one():
    found = Record(PATH).find("layer_norm", "float32", 4096, 768)
    assert found.ratio["torch"] == 1 and found.of("torch") == found.milliseconds
    assert found.percent_of_copy["copy"] == pytest.approx(100)
    assert found.percent_of_copy["numba"] > found.percent_of_copy["composition"]


def test_what_was_not_concluded_is_not_given():
    with pytest.raises(KeyError, match="concludes nothing about it"):
        Record(PATH).find("rms_norm", "bfloat16", 8, 16)


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
