"""Each placement is its formula, and no other placement is."""

import pytest
import torch
from torch import nn

from normlab.layers import AdaLN, RMSNorm, layer_norm
from normlab.residual import (
    AdaLNZero,
    DeepNorm,
    Keel,
    LayerScale,
    OutputNorm,
    PostNorm,
    PreNorm,
    ResiDual,
    ReZero,
    SandwichNorm,
    ScaledPreNorm,
    SubNorm,
    hybrid_norm,
    mix_norm,
)


@pytest.fixture
def parts():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        branch = nn.Linear(6, 6).double()
        norms = [RMSNorm(6, dtype=torch.float64) for _ in range(3)]
        for norm in norms:
            nn.init.uniform_(norm.weight, 0.5, 1.5)
        return branch, *norms, torch.randn(3, 6, dtype=torch.float64)


def test_blocks_are_their_formulas_and_no_others(parts):
    f, a, b, _, x = parts
    formulas = {
        "sandwich": (SandwichNorm(f, a, b)(x), x + b(f(a(x)))),
        "output": (OutputNorm(f, a)(x), x + a(f(x))),
        "scaled": (ScaledPreNorm(f, a, layer=9)(x), x + f(a(x) / 3)),
        "keel": (Keel(f, a, b, alpha=2.5)(x), b(2.5 * x + f(a(x)))),
        "sub": (SubNorm(f, nn.Linear(6, 6).double(), a, b)(x), None),
        "post": (PostNorm(f, a)(x), a(x + f(x))),
        "pre": (PreNorm(f, a)(x), x + f(a(x))),
        "deep": (DeepNorm(f, a, alpha=2.5)(x), a(2.5 * x + f(x))),
    }
    for name, (got, expected) in formulas.items():
        if expected is not None:
            torch.testing.assert_close(got, expected)
        for other, (_, wrong) in formulas.items():
            if other != name and wrong is not None:
                assert (got - wrong).abs().max() > 0.05, (name, other)


def test_two_streams(parts):
    f, a, _, _, x = parts
    d = 2 * x
    p_new, d_new = ResiDual(f, a)((x, d))
    torch.testing.assert_close(p_new, a(x + f(x)))
    torch.testing.assert_close(d_new, d + f(x))


def test_a_norm_inside_the_branch(parts):
    f, a, _, _, x = parts
    wide, last, mid = nn.Linear(6, 9).double(), nn.Linear(9, 6).double(), RMSNorm(9).double()
    y = SubNorm(nn.Sequential(wide, nn.ReLU()), last, a, mid)(x)
    torch.testing.assert_close(y, x + last(mid(wide(a(x)).relu())))
    assert (y - x - last(wide(a(x)).relu())).abs().max() > 0.01
    with pytest.raises(ValueError, match="same shape"):
        SubNorm(f, wide, a, a)(x)


def test_which_layers():
    assert mix_norm(8) == ("post",) * 2 + ("pre",) * 6
    assert mix_norm(3) == ("pre",) * 3
    assert mix_norm(2, post=1.0) == ("post", "post")
    assert hybrid_norm(3) == (("qkv", "post"),) * 3
    assert hybrid_norm(3, star=True)[0] == ("pre+qkv", "pre")
    assert hybrid_norm(3, star=True)[1:] == (("qkv", "post"),) * 2


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ScaledPreNorm(nn.Identity(), nn.Identity(), layer=0), ValueError, "layer.*1"),
        (lambda: ScaledPreNorm(nn.Identity(), nn.Identity(), layer=1.5), TypeError, "layer"),
        (lambda: Keel(*[nn.Identity()] * 3, alpha=0.0), ValueError, "alpha"),
        (lambda: mix_norm(4, post=1.5), ValueError, "post"),
        (lambda: mix_norm(0), ValueError, "layers"),
        (lambda: hybrid_norm(True), TypeError, "layers"),
        (lambda: LayerScale(4)(torch.ones(2, 3)), ValueError, r"\(\*, 4\)"),
        (
            lambda: OutputNorm(nn.Linear(3, 4), nn.Identity())(torch.ones(2, 3)),
            ValueError,
            "same shape",
        ),
    ],
)
def test_errors_name_the_argument(call, error, words):
    with pytest.raises(error, match=words):
        call()


# --- branches with factors


def test_rezero_starts_as_the_identity_and_learns_its_factor_first(parts):
    f, *_, x = parts
    block = ReZero(f).double()
    y = block(x)
    assert torch.equal(y, x)
    y.backward(torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    assert block.alpha.grad.abs() > 0.1
    assert all(p.grad.abs().max() == 0 for p in f.parameters())


def test_layer_scale(parts):
    f, a, _, _, x = parts
    block = PreNorm(nn.Sequential(f, LayerScale(6, init=0.1, dtype=torch.float64)), a)
    torch.testing.assert_close(block(x), x + 0.1 * f(a(x)))


def test_adaln_zero_starts_as_the_identity_and_only_its_gate_learns(parts):
    f, *_, x = parts
    block = AdaLNZero(f, 6, 4).double()
    condition = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    y = block(x, condition)
    assert torch.equal(y, x)
    y.backward(torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(4)))
    assert block.gate.weight.grad.abs().max() > 0.01
    silent = [*f.parameters(), *block.norm.parameters()]
    assert all(p.grad.abs().max() == 0 for p in silent)


def test_a_forgotten_one_shows_only_after_the_gate_has_opened(parts):
    """Both are the identity at the start, so a test of the start cannot tell them apart."""
    f, *_, x = parts
    condition = torch.ones(3, 4, dtype=torch.float64)

    class Forgotten(AdaLN):
        def forward(self, input, condition):
            return super().forward(input, condition) - layer_norm(input, (6,), None, None, 1e-6)

    right, wrong = AdaLNZero(f, 6, 4).double(), AdaLNZero(f, 6, 4).double()
    wrong.norm = Forgotten(6, 4).double()
    assert torch.equal(right(x, condition), wrong(x, condition))
    for block in (right, wrong):
        nn.init.ones_(block.gate.bias)
        nn.init.ones_(block.gate.weight)
    assert (right(x, condition) - wrong(x, condition)).abs().max() > 0.1
