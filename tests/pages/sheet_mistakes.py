"""The checks and the mistakes on the cheat sheet: each is made, and seen."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable

import pandas as pd
import torch
from sheet import Section, without_links
from sheet_conventions import randn
from torch import Tensor, nn
from torch.nn import functional as F

from normlab import layers, residual
from normlab.book.experiments.checks.check_styles import SHIFT, SMALL, caught, check_styles
from normlab.book.experiments.debugging.gradient_accumulation import gradient_accumulation
from normlab.checks import LAYER_NORM_MUTANTS, check_layer
from normlab.checks.mutants import WrongModule, find_mutant
from normlab.commands import main


@functools.cache
def run_styles() -> pd.DataFrame:
    return check_styles.sweep(size=[4, 64])


def verify_checks(section: Section) -> None:
    head, *rows = section.take_table()
    assert head == ["check", "finds, for example"] and len(rows) == 5
    styles = run_styles()
    # The check of each row, and one that most people have and that does not find it.
    pairs = (
        (("random gradient", 64), ("gradient of sum", 64)),
        (("small input", 64), ("values, 0.0001", 64)),
        (("shifted input", 64), ("values, 0.0001", 64)),
        (("values, 0.1", 4), ("values, 0.1", 64)),
    )
    for (says, finds), (finder, other) in zip(rows, pairs, strict=False):
        for name in re.findall(r"`(\w+)`", finds):
            assert name in LAYER_NORM_MUTANTS
            assert name in caught(styles, *finder), says
            assert name not in caught(styles, *other), says
    assert f"{SMALL:.0e}" in rows[1][0] and f"{SHIFT:.0f}" in rows[2][0]
    assert "y.sum()" in rows[0][0] and "float64" in rows[2][0] and "four" in rows[3][0]
    mistakes = re.findall(r"`(\w+)`", rows[4][1])
    assert len(mistakes) == 2
    assert check_layer(WrongModule("batch_norm", 6), like="batch_norm").passed
    for mistake in mistakes:
        wrong = find_mutant("batch_norm", mistake).make()
        assert not check_layer(wrong, like="batch_norm").passed
    (command,) = re.findall(r"`normlab (check [^`]+)`", section.rest)
    words = command.replace("module:Object", "torch.nn:LayerNorm --init 16").split()
    assert main(words) == 0
    section.claim(f"`normlab {command}`")


def raises(call: Callable[[], object]) -> bool:
    try:
        call()
    except (RuntimeError, ValueError):
        return True
    return False


def verify_axis(text: str) -> None:
    x = randn(2, 4, 3, 4)
    sizes = {"nn": nn, "C": 4, "D": 4}
    layer_call, batch_call, instance_call = re.findall(r"`(nn\.[^`]+)`", text)
    layer, batch = (eval(call, sizes).double() for call in (layer_call, batch_call))
    assert layer(x).mean(-1).abs().max() < 1e-12 < 0.01 < layer(x).mean(1).abs().max()
    assert raises(lambda: layer(x[..., :3]))
    tokens = randn(3, 4, 4)
    assert (
        batch(tokens).mean((0, 2)).abs().max()
        < 1e-12
        < 0.01
        < batch(tokens).mean((0, 1)).abs().max()
    )
    assert "over W if W equals C, else it raises" in text and "tokens for channels" in text
    instance = eval(instance_call, sizes).double()
    for rows, complaints in ((randn(4, 4), 0), (randn(3, 4), 1)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert torch.allclose(instance(rows), F.layer_norm(rows, (4,)))
        assert len(seen) == complaints
        assert raises(lambda rows=rows: F.instance_norm(rows))
    assert "`nn.InstanceNorm1d(D)` on (N, D) is layer norm" in text


def verify_freezing(text: str) -> None:
    norm, x = nn.BatchNorm1d(4).double(), 5 + randn(6, 4)
    norm.requires_grad_(False)(x)
    assert norm.running_mean.abs().max() > 0.1
    norm.requires_grad_(True).eval()
    norm(x).square().sum().backward()
    torch.optim.SGD(norm.parameters(), lr=0.1).step()
    assert (norm.weight != 1).all()
    before = norm.running_mean.clone()
    norm.train()(x)
    assert not torch.equal(norm.running_mean, before)
    assert "`requires_grad_(False)` does not stop the buffers" in text
    assert "`eval()` does not stop the optimizer, `train()` undoes `eval()`" in text


def verify_accumulation(text: str) -> None:
    assert gradient_accumulation("batch_norm", parts=4, seed=0)["error"] > 0.05
    assert gradient_accumulation("layer_norm", parts=4, seed=0)["error"] < 1e-5
    assert "with batch norm, micro-batches do not add up" in text


def verify_padding(text: str) -> None:
    x = 2 + randn(3, 5, 4)  # (N, T, D)
    padded = torch.cat([x, torch.zeros(3, 2, 4).double()], dim=1)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "batch": lambda x: F.batch_norm(x.mT, None, None, training=True).mT,
        "group": lambda x: F.group_norm(x.mT, 2).mT,
        "instance": lambda x: F.instance_norm(x.mT).mT,
        "layer": lambda x: F.layer_norm(x, (4,)),
        "RMS": lambda x: F.rms_norm(x, (4,)),
    }
    moved = [name for name, f in calls.items() if not torch.allclose(f(padded)[:, :5], f(x))]
    stay = [name for name in calls if name not in moved]
    written = f"changes {', '.join(moved[:-1])} and {moved[-1]} norm, not {' or '.join(stay)} norm"
    assert written in text


def verify_bias(text: str) -> None:
    x, bias = randn(6, 4), randn(4, seed=1)
    lost = torch.allclose(layers.batch_norm(x + bias, None, None, training=True),
                          layers.batch_norm(x, None, None, training=True))  # fmt: skip
    kept = not torch.allclose(F.layer_norm(x + bias, (4,)), F.layer_norm(x, (4,)))
    mean, var = x.mean(0), x.var(0)
    in_use = not torch.allclose(
        layers.batch_norm(x + bias, mean, var), layers.batch_norm(x, mean, var)
    )
    assert lost and kept and in_use
    linear, norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
    start, sgd_moves = linear.bias.detach().clone(), 0.0
    adam = torch.optim.Adam(linear.parameters(), lr=0.01)
    for seed in range(20):
        adam.zero_grad()
        y = norm(linear(randn(32, 4, seed=seed).float()))
        (y - randn(32, 4, seed=100 + seed)).square().mean().backward()
        sgd_moves += 0.01 * linear.bias.grad.abs().max().item()
        adam.step()
    assert (linear.bias - start).abs().max() > 0.01 > 1e4 * sgd_moves
    assert "before batch norm is lost in training, but for rounding" in text
    assert "before layer norm it is not" in text


def verify_alpha(text: str) -> None:
    x, norm, f = randn(3, 8), nn.LayerNorm(8, eps=0.0).double(), nn.Linear(8, 8).double()
    (code,) = re.findall(r"`(norm[^`]+)`", text)
    alpha = 2.5
    wrong = eval(code, {"norm": norm, "f": f, "x": x, "alpha": alpha})
    assert torch.allclose(wrong, residual.DeepNorm(f, norm, alpha=1 / alpha)(x))
    scaled = F.layer_norm(alpha * x, (8,), eps=0.1)
    assert torch.allclose(scaled, F.layer_norm(x, (8,), eps=0.1 / alpha**2))
    assert "DeepNorm with 1 / alpha; on the sum it only changes eps" in text


def verify_nan(text: str) -> None:
    norm, x = nn.BatchNorm1d(4).double(), randn(6, 4)
    norm(x * torch.nan)
    for _ in range(50):
        norm(x)
    assert norm.running_mean.isnan().all() and "stays in the buffers" in text


MISTAKES: dict[str, Callable[[str], None]] = {
    "Axis": verify_axis,
    "Freezing": verify_freezing,
    "Accumulation": verify_accumulation,
    "Padding": verify_padding,
    "Bias": verify_bias,
    "Alpha": verify_alpha,
    "NaN": verify_nan,
}


def verify_mistakes(section: Section) -> None:
    bullets = re.findall(
        r"^\* \*\*(\w+)\*\*(.*?)(?=^\* |\Z)", section.text, re.DOTALL | re.MULTILINE
    )
    assert [name for name, _ in bullets] == list(MISTAKES)
    assert len(bullets) == section.text.count("\n* ") + section.text.startswith("* ")
    for name, text in bullets:
        MISTAKES[name](" ".join(without_links(text).split()))
    section.rest = ""
