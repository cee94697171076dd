"""Blocks are read by running them, so another block gives another list, formula and drawing."""

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from normlab import residual
from normlab.book.plotting import plot_block
from normlab.residual import trace_block, write_formula

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


def linear():
    return nn.Linear(4, 4)


def norm():
    return nn.RMSNorm(4)


BLOCKS = {
    "N(x + F(x))": lambda: residual.PostNorm(linear(), norm()),
    "x + F(N(x))": lambda: residual.PreNorm(linear(), norm()),
    "x + N(F(x))": lambda: residual.OutputNorm(linear(), norm()),
    "x + N(F(N(x)))": lambda: residual.SandwichNorm(linear(), norm(), norm()),
    r"N(8\,x + F(N(x)))": lambda: residual.Keel(linear(), norm(), norm(), alpha=8),
    r"N(2\,x + F(x))": lambda: residual.DeepNorm(linear(), norm(), alpha=2.0),
    r"x + F(0.5\,N(x))": lambda: residual.ScaledPreNorm(linear(), norm(), layer=4),
    "x + F(N(F(N(x))))": lambda: residual.SubNorm(linear(), linear(), norm(), norm()),
}


def boxes(steps):
    """Texts of the boxes of a drawing, with their places."""
    ax = plot_block(Figure().add_subplot(), steps)
    return {
        (round(t.get_position()[0], 2), round(t.get_position()[1], 2), t.get_text())
        for t in ax.texts
    }


@pytest.mark.parametrize("formula", BLOCKS)
def test_the_formula_of_a_block_is_what_it_computes(formula):
    assert write_formula(trace_block(BLOCKS[formula](), X)) == formula


def test_every_placement_has_a_drawing_of_its_own():
    drawings = [frozenset(boxes(trace_block(make(), X))) for make in BLOCKS.values()]
    assert len(set(drawings)) == len(BLOCKS)


@pytest.mark.parametrize("formula", BLOCKS)
def test_a_drawing_has_a_box_for_each_step(formula):
    steps = trace_block(BLOCKS[formula](), X)
    drawn = [text for _, _, text in boxes(steps)]
    for kind, text in (("norm", "norm"), ("branch", "branch"), ("add", "+"), ("input", "x")):
        assert drawn.count(text) == sum(step.kind == kind for step in steps), kind
    assert sum("×" in text for text in drawn) == sum(step.kind == "scale" for step in steps)


class MovedNorm(residual.PreNorm):
    """What calls itself pre-norm and normalizes behind the branch."""

    def forward(self, x):
        return x + self.norm(self.sublayer(x))


def test_a_changed_block_changes_the_drawing():
    right, moved = residual.PreNorm(linear(), norm()), MovedNorm(linear(), norm())
    assert boxes(trace_block(right, X)) != boxes(trace_block(moved, X))
    assert write_formula(trace_block(moved, X)) == "x + N(F(x))"
    output = residual.OutputNorm(linear(), norm())
    assert boxes(trace_block(moved, X)) == boxes(trace_block(output, X))


def test_what_happens_inside_a_module_is_its_own():
    """A norm and a branch that add and multiply tensors are still one step each."""
    block = residual.PreNorm(residual.PostNorm(linear(), norm()), norm())
    assert [s.kind for s in trace_block(block, X)] == ["input", "norm", "branch", "add"]


class Skipless(residual.PreNorm):
    def forward(self, x):
        return self.sublayer(self.norm(x))


class Clipped(residual.PreNorm):
    def forward(self, x):
        return x + self.sublayer(self.norm(x).clamp(-1, 1))


def test_what_is_no_residual_block_is_named():
    with pytest.raises(ValueError, match="0 sums; expected a block with one sum"):
        plot_block(Figure().add_subplot(), trace_block(Skipless(linear(), norm()), X))
    with pytest.raises(ValueError, match="no module, sum or factor"):
        trace_block(Clipped(linear(), norm()), X)


def test_hooks_leave_the_block_as_it_was():
    block = residual.PreNorm(linear(), norm())
    trace_block(block, X)
    assert not block.norm._forward_hooks and not block.sublayer._forward_pre_hooks
