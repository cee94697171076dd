"""Norms of other packages beside ours: the same formula and gradients, called as theirs are."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from normlab.bench import Case, peers
from normlab.bench.__main__ import main
from normlab.bench.cases import EPS, GROUPS
from normlab.bench.peers import find_peers, liger_norm
from normlab.bench.variants import functions

RMS = Case("rms_norm", "float32", (6, 32))


def test_rms_norms_of_transformers_are_ours() -> None:
    pytest.importorskip("transformers", reason="it is not among what the suite needs")
    found = find_peers(RMS)
    assert list(found) == ["LlamaRMSNorm", "T5LayerNorm"]
    (x, weight), dy = RMS.tensors()
    expected = F.rms_norm(x, (32,), weight, EPS)
    gradients = torch.autograd.grad(expected, (x, weight), dy)
    for function in found.values():
        y = function(x, weight)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-6)
        for got, right in zip(torch.autograd.grad(y, (x, weight), dy), gradients, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-5, atol=2e-6)
        other = weight.detach() + 1  # the weight is an argument, not what the module was made with
        assert not torch.allclose(function(x, other), expected)


def test_they_are_asked_for_and_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="it is not among what the suite needs")
    assert "LlamaRMSNorm" not in functions(RMS)
    assert "LlamaRMSNorm" in functions(RMS, peers=True)
    assert find_peers(Case("layer_norm", "float32", (6, 32))) == {}
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert find_peers(RMS) == {}


def test_the_command_times_them(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="it is not among what the suite needs")
    main(["--norms", "rms_norm", "--shapes", "16x32", "--rounds", "5", "--peers"])
    out = capsys.readouterr().out
    assert "LlamaRMSNorm" in out or "nothing can be concluded" in out
    assert "left out" not in out


class Liger:
    """Functions with Liger's arguments, which write over what is above unless told not to."""

    @staticmethod
    def liger_layer_norm(X: Tensor, W: Tensor, B: Tensor, eps: float) -> Tensor:
        return F.layer_norm(X, W.shape, W, B, eps)

    @staticmethod
    def liger_rms_norm(
        X: Tensor,
        W: Tensor,
        eps: float,
        offset: float = 0.0,
        casting_mode: str = "llama",
        in_place: bool = True,
    ) -> Tensor:
        assert not in_place
        return F.rms_norm(X, W.shape, offset + W, eps)

    @staticmethod
    def liger_group_norm(
        X: Tensor,
        affine_scaling_weight: Tensor,
        affine_shifting_bias: Tensor,
        num_channels: int,
        num_groups: int,
        eps: float,
    ) -> Tensor:
        assert X.shape[1] == num_channels
        return F.group_norm(X, num_groups, affine_scaling_weight, affine_shifting_bias, eps)

    @staticmethod
    def liger_fused_add_rms_norm(
        X: Tensor, R: Tensor, W: Tensor, eps: float, *, in_place: bool = True
    ) -> tuple[Tensor, Tensor]:
        assert not in_place
        return F.rms_norm(X + R, W.shape, W, eps), X + R


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm", "group_norm", "add_rms_norm"])
def test_norms_of_liger_get_their_arguments_in_order(norm: str) -> None:
    case = Case(norm, "float32", (4, 2 * GROUPS, 3) if norm == "group_norm" else (4, 16))
    function = liger_norm(Liger, case)
    assert function is not None
    tensors, _ = case.tensors()
    torch.testing.assert_close(function(*tensors), case.bound(F)(*tensors))


def test_liger_is_for_a_gpu_and_what_it_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> Any:
        return SimpleNamespace() if name == "liger_kernel" else None

    monkeypatch.setattr(importlib.util, "find_spec", find)
    monkeypatch.setattr(peers.importlib, "import_module", lambda _: Liger)
    assert list(find_peers(Case("layer_norm", "float32", (4, 8), device="cuda"))) == ["Liger"]
    assert find_peers(Case("layer_norm", "float32", (4, 8))) == {}
    assert find_peers(Case("batch_norm", "float32", (4, 8), device="cuda")) == {}
    assert liger_norm(SimpleNamespace(), RMS) is None  # an older version
