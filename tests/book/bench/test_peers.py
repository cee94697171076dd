"""Norms of Liger Kernel beside ours: called with the arguments that they have."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from normlab.book.bench import Case, variants
from normlab.book.bench.variants import find_peers


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


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> Any:
        return SimpleNamespace() if name == "liger_kernel" else None

    monkeypatch.setattr(importlib.util, "find_spec", find)
    monkeypatch.setattr(variants.importlib, "import_module", lambda _: Liger)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_norms_of_liger_get_their_arguments_in_order(norm: str) -> None:
    function = find_peers(Case(norm, "float32", (4, 16), device="cuda"))["Liger"]
    case = Case(norm, "float32", (4, 16))
    tensors, _ = case.tensors()
    torch.testing.assert_close(function(*tensors), case.bound(F)(*tensors))


@pytest.mark.usefixtures("installed")
def test_liger_is_for_a_gpu_and_two_norms() -> None:
    assert find_peers(Case("layer_norm", "float32", (4, 8))) == {}
    assert find_peers(Case("batch_norm", "float32", (4, 8), device="cuda")) == {}


def test_without_liger_there_is_no_peer() -> None:
    assert importlib.util.find_spec("liger_kernel") is None
    assert find_peers(Case("layer_norm", "float32", (4, 8), device="cuda")) == {}
