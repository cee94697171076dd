"""Noise of one unit in the last place of every float32 product: it stands for another processor."""

from __future__ import annotations

import os
import subprocess
import sys

# Products before and after, in a process of its own: what is switched on stays on.
PROGRAM = """
import os
import torch
from torch.nn import functional as F
from normlab.book.sources import setup
from normlab.book.sources.noise import add_noise

def by_the_notebook(seed):
    os.environ["NORMLAB_NOISE"] = str(seed)
    setup()

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
if SWITCH is by_the_notebook:
    setup()
    assert all(torch.equal(call(), before[name]) for name, call in CALLS.items())
state = torch.get_rng_state()
SWITCH(SEED)
SWITCH(SEED)
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
try:
    SWITCH(SEED + 1)
except RuntimeError as error:
    print(error)
"""


def run(switch: str, seed: int) -> str:
    program = PROGRAM.replace("SWITCH", switch).replace("SEED", str(seed))
    environment = {k: v for k, v in os.environ.items() if k != "NORMLAB_NOISE"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_product_moves_by_a_unit_in_the_last_place_and_nothing_else_moves() -> None:
    """By a call and by the set-up of a notebook, which without the variable moves nothing."""
    one, two = run("add_noise", 1).splitlines(), run("by_the_notebook", 2).splitlines()
    assert one[0] != two[0]
    for said in (one[1], two[1]):
        assert said == "the process has noise; start another one for another seed"
