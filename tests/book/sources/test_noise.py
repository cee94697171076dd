"""Noise of one unit in the last place of every float32 product: it stands for another processor."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Products before and after, in a process of its own: what is switched on stays on.
PROGRAM = """
import torch
from torch.nn import functional as F
from normlab.book.sources.noise import add_noise

generator = torch.Generator().manual_seed(0)
def draw(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

a, b, bias, v = draw(9, 6), draw(6, 5), draw(5), draw(6)
batch, stack = draw(3, 9, 6), draw(3, 6, 5)
image, filters = draw(2, 3, 8, 8), draw(4, 3, 3, 3)
leaf = draw(9, 6).requires_grad_()
long = draw(2, 6), draw(6, 2**19 + 3)

def gradient():
    (found,) = torch.autograd.grad((leaf @ b), leaf, b.new_ones(9, 5))
    return found

CALLS = {
    "mm": lambda: a @ b,
    "addmm": lambda: F.linear(a, b.T, bias),
    "bmm": lambda: batch @ stack,
    "baddbmm": lambda: torch.baddbmm(bias, batch, stack),
    "mv": lambda: a @ v,
    "addmv": lambda: torch.addmv(draw(9) * 0, a, v),
    "dot": lambda: v @ v,
    "convolution": lambda: F.conv2d(image, filters),
    "attention": lambda: F.scaled_dot_product_attention(*3 * [batch[None]]),
    "backward": gradient,
    "longer than the signs": lambda: long[0] @ long[1],
}
EXACT = {
    "float64": lambda: a.double() @ b.double(),
    "integers": lambda: a.long() @ b.long(),
    "sum": lambda: a.sum(0),
    "norm": lambda: F.layer_norm(a, (6,)),
}
torch.manual_seed(3)
before = {name: call() for name, call in (CALLS | EXACT).items()}
state = torch.get_rng_state()
add_noise(SEED)
add_noise(SEED)
assert torch.equal(state, torch.get_rng_state())
signs = []
for name, call in CALLS.items():
    first, again = call(), call()
    assert torch.equal(first, again), name
    change = (first.double() - before[name].double()) / before[name].double().abs()
    change = change[before[name] != 0]
    assert 2**-25 < change.abs().min() and change.abs().max() < 2**-21.9, name
    signs += (change > 0).flatten().tolist()[:50]
assert 0.3 < sum(signs) / len(signs) < 0.7
print("".join("+-"[s] for s in signs[:40]))
for name, call in EXACT.items():
    assert torch.equal(call(), before[name]), name
"""


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout


def test_every_product_moves_by_a_unit_in_the_last_place_and_nothing_else_moves() -> None:
    one, two = (run(PROGRAM.replace("SEED", seed)) for seed in ("1", "2"))
    assert one != two


def test_a_process_has_one_noise() -> None:
    program = "from normlab.book.sources.noise import add_noise\nadd_noise(1)\nadd_noise(2)"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(program)
    assert "start another one for another seed" in failed.value.stderr


def test_the_set_up_of_a_notebook_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import torch\nfrom normlab.book.sources import setup\n"
        "a, b = torch.rand(4, 4), torch.rand(4, 4)\nbefore = a @ b\nsetup()\n"
        "print(torch.equal(before, a @ b))"
    )
    monkeypatch.delenv("NORMLAB_NOISE", raising=False)
    assert run(program).strip() == "True"
    monkeypatch.setenv("NORMLAB_NOISE", "1")
    assert run(program).strip() == "False"
