"""The correction of batch renorm: right layers of others, wrong ones, and untestable ones."""

import functools

import pytest
import torch
from torch import nn

from normlab import check_layer, layers
from normlab.checks.mutants import find_mutant
from normlab.checks.mutants.with_running import CORRECTION_MISTAKES

LIKE = "batch_renorm"


class Foreign(nn.Module):
    """Other names, bounds in buffers, and the running root in the place of rstd."""

    def __init__(self, size, first=3.0, detach=True):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer("moving_mean", torch.zeros(size))
        self.register_buffer("moving_var", torch.ones(size))
        self.register_buffer("rmax", torch.tensor(first))
        self.register_buffer("dmax", torch.tensor(5.0))
        self.eps, self.momentum, self.detach = 1e-5, 0.1, detach

    def forward(self, x):
        dims, shape = (0, *range(2, x.dim())), (1, -1, *[1] * (x.dim() - 2))
        wide = x.float()
        mean, var = self.moving_mean.float(), self.moving_var.float()
        if self.training:
            mu, square = wide.mean(dims), wide.var(dims, unbiased=False)
            r, d = (square + self.eps).sqrt() / (var + self.eps).sqrt(), mu - mean
            d = d / (var + self.eps).sqrt()
            if self.detach:
                r, d = r.detach(), d.detach()
            limit = float(self.rmax)
            r, d = r.clamp(1 / limit, limit), d.clamp(-float(self.dmax), float(self.dmax))
            y = (wide - mu.view(shape)) / (square + self.eps).sqrt().view(shape)
            y = y * r.view(shape) + d.view(shape)
            count = x.numel() // x.shape[1]
            with torch.no_grad():
                self.moving_mean.lerp_(mu.to(self.moving_mean.dtype), self.momentum)
                unbiased = square * count / (count - 1)
                self.moving_var.lerp_(unbiased.to(self.moving_var.dtype), self.momentum)
        else:
            y = (wide - mean.view(shape)) / (var + self.eps).sqrt().view(shape)
        return (y * self.gamma.view(shape) + self.beta.view(shape)).to(x.dtype)


def test_a_foreign_module_with_bounds_in_buffers_conforms():
    report = check_layer(Foreign(5), like=LIKE)
    assert report.passed, str(report)
    assert {"correction", "gradient, correction"} <= set(report.checks)


def test_the_layer_that_is_given_keeps_its_bounds():
    module = layers.BatchRenorm1d(5, r_max=2.0, d_max=4.0)
    assert check_layer(module, like=LIKE).passed
    assert (module.r_max, module.d_max) == (2.0, 4.0)


@pytest.mark.parametrize("mistake", CORRECTION_MISTAKES)
def test_a_module_is_told_the_mistake_of_the_function(mistake):
    class Wrong(layers.BatchRenorm1d):
        def forward(self, x):
            known = self.running_mean, self.running_var, self.weight, self.bias
            rest = self.training, self.momentum, self.eps, self.r_max, self.d_max
            return find_mutant(LIKE, mistake).make()(x, *known, *rest)

    found = check_layer(Wrong(5), like=LIKE).failures
    assert [f.mistake for f in found] == [mistake]


@pytest.mark.parametrize(
    ("layer", "mistake"),
    [
        (nn.BatchNorm1d(5), "correction_ignored"),
        (nn.functional.batch_norm, "correction_ignored"),
        (Foreign(5, detach=False), "correction_attached"),
    ],
    ids=["torch's module", "torch's function", "attached"],
)
def test_a_layer_that_is_otherwise_right_is_told_one_mistake(layer, mistake):
    assert [f.mistake for f in check_layer(layer, like=LIKE).failures] == [mistake]


def test_without_the_correction_the_mistakes_of_batch_norm_are_named_alone():
    report = check_layer(find_mutant(LIKE, "bessel").make(), like=LIKE)
    assert {f.mistake for f in report.failures} == {"bessel"}
    assert any(note.startswith("the correction, because") for note in report.notes)


def test_bounds_that_cannot_be_set_cannot_be_tested():
    fixed = functools.partial(layers.batch_renorm, r_max=3.0, d_max=5.0)

    def function(
        x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
    ):
        return fixed(x, running_mean, running_var, weight, bias, training, momentum, eps)

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = layers.BatchRenorm1d(5)
            self.norm.bound, self.norm.shift = self.norm.r_max, self.norm.d_max
            del self.norm.r_max, self.norm.d_max

        def forward(self, x):
            own = self.norm
            known = own.running_mean, own.running_var, own.weight, own.bias
            return fixed(x, *known, self.training, own.momentum, own.eps)

    for layer in (function, Module()):
        with pytest.raises(ValueError, match="takes no bounds r_max and d_max"):
            check_layer(layer, like=LIKE)


def test_a_correction_that_raises_is_a_failure():
    def picky(x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1,
              eps=1e-5, r_max=3.0, d_max=5.0):  # fmt: skip
        if r_max > 1:
            raise RuntimeError("no bound above one")
        known = running_mean, running_var, weight, bias, training, momentum, eps
        return layers.batch_renorm(x, *known, r_max, d_max)

    (failure,) = check_layer(picky, like=LIKE).failures
    assert failure.mistake == "correction_raises"
    assert "no bound above one" in failure.message


def test_without_gradients_their_part_is_left_out():
    attached = find_mutant(LIKE, "correction_attached").make()
    report = check_layer(attached, like=LIKE, forward_only=True)
    assert report.passed
    assert "gradient, correction" not in report.checks
