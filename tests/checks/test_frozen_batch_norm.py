"""check_layer and identify: batch norm whose weight, bias and statistics are buffers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab import check_layer, identify

NAMES = ("weight", "bias", "running_mean", "running_var")


class Frozen(nn.Module):
    """As detection models hold it, for images."""

    def __init__(self, size=6, eps=1e-5):
        super().__init__()
        self.eps = eps
        for name in NAMES:
            start = torch.zeros if name in ("bias", "running_mean") else torch.ones
            self.register_buffer(name, start(size))

    def rstd(self):
        return (self.running_var + self.eps).rsqrt()

    def forward(self, x):
        factor = self.weight * self.rstd()
        summand = self.bias - self.running_mean * factor
        return x * factor[:, None, None] + summand[:, None, None]


class Evaluated(Frozen):
    """By torch's own function, for any rank."""

    def forward(self, x):
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )


class WithoutBias(Frozen):
    def __init__(self, size=6):
        super().__init__(size)
        del self.bias
        self.bias = 0.0

    def forward(self, x):
        factor = (self.weight * self.rstd())[:, None, None]
        return (x - self.running_mean[:, None, None]) * factor


class IgnoresEps(Frozen):
    def rstd(self):
        return self.running_var.rsqrt()


class DefaultEps(Frozen):
    def rstd(self):
        return (self.running_var + 1e-5).rsqrt()


class EpsOutside(Frozen):
    def rstd(self):
        return 1 / (self.running_var.sqrt() + self.eps)


class ForgetsMean(Frozen):
    def forward(self, x):
        return x * (self.weight * self.rstd())[:, None, None] + self.bias[:, None, None]


class Moves(Evaluated):
    """Its buffers follow the batches in training."""

    def forward(self, x):
        y = super().forward(x)
        if self.training:
            self.running_mean = self.running_mean.lerp(x.detach().mean((0, 2, 3)), 0.1)
        return y


class Trained(Frozen):
    def __init__(self, size=6):
        super().__init__(size)
        for name in ("weight", "bias"):
            value = getattr(self, name)
            delattr(self, name)
            setattr(self, name, nn.Parameter(value))


class TrainedStatistics(Frozen):
    def __init__(self, size=6):
        super().__init__(size)
        for name in NAMES:
            value = getattr(self, name)
            delattr(self, name)
            setattr(self, name, nn.Parameter(value))


class NotLoaded(Frozen):
    """What is loaded has no statistics: they stay those of a fresh layer."""

    def _load_from_state_dict(self, state, prefix, *rest):
        for name in NAMES[2:]:
            state[prefix + name] = getattr(self, name)
        super()._load_from_state_dict(state, prefix, *rest)


class NotSaved(Frozen):
    def __init__(self, size=6):
        super().__init__(size)
        self.register_buffer("running_var", torch.ones(size), persistent=False)


RIGHT = {
    "detection": lambda: Frozen(),
    "another eps": lambda: Frozen(eps=1e-3),
    "many channels": lambda: Frozen(40),
    "torch's function": lambda: Evaluated(),
    "no bias": lambda: WithoutBias(),
}
WRONG = {
    "eps ignored": (IgnoresEps, {"other_eps"}, "eps is 0, expected 1e-05"),
    "another eps": (lambda: DefaultEps(eps=1e-3), {"other_eps"}, "eps is 1e-05, expected 0.001"),
    "eps outside": (EpsOutside, {"eps_outside"}, "eps is added to the root"),
    "no mean": (ForgetsMean, {"uncentered_numerator"}, "the mean is not subtracted"),
    "moves": (Moves, {"frozen_moves"}, "training moves the running mean"),
    "batch norm": (lambda: nn.BatchNorm2d(6, affine=False), None, "statistics of the batch"),
    "parameters": (Trained, {"not_frozen"}, "weight, bias: a parameter, which an optimizer"),
    "all parameters": (TrainedStatistics, {"not_frozen"}, "running_var: a parameter"),
    "not loaded": (NotLoaded, {"state_lost"}, "load_state_dict leaves running_mean as it is"),
    "not saved": (NotSaved, {"state_lost"}, "evaluates differently"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_conforms(name):
    module = RIGHT[name]()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    report = check_layer(module, like="frozen_batch_norm")
    assert report.passed, report
    assert report.like == "frozen_batch_norm"
    assert {"running statistics", "evaluation", "saved state", "large input"} <= {*report.checks}
    assert report.untested == []
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_one_is_named(name):
    make, mistakes, words = WRONG[name]
    report = check_layer(make(), like="frozen_batch_norm")
    found = {f.mistake for f in report.failures}
    assert found == (mistakes or {"frozen_uses_batch", "frozen_moves"}), report
    assert words in str(report)


def test_a_batch_norm_is_no_frozen_one_and_the_other_way_round():
    assert not check_layer(nn.BatchNorm2d(6).eval(), like="frozen_batch_norm").passed
    assert not check_layer(Frozen(), like="batch_norm").passed


def test_what_holds_no_statistics_could_not_be_tested():
    with pytest.raises(ValueError, match="a module with buffers"):
        check_layer(F.batch_norm, like="frozen_batch_norm")
    with pytest.raises(ValueError, match="no running mean and variance"):
        check_layer(nn.Identity(), like="frozen_batch_norm", shape=(2, 6, 5, 4))


@pytest.mark.parametrize(
    ("make", "eps", "place"),
    [
        (Frozen, 1e-5, "inside"),
        (lambda: Frozen(eps=1e-3), 1e-3, "inside"),
        (Evaluated, 1e-5, "inside"),
        (WithoutBias, 1e-5, "inside"),
        (lambda: EpsOutside(eps=1e-4), 1e-4, "outside"),
        (IgnoresEps, 0.0, None),
    ],
)
def test_it_is_identified(make, eps, place):
    found = identify(make(), shape=(2, 6, 5, 4))
    assert (found.family, found.eps, found.eps_placement) == ("frozen_batch_norm", eps, place)
    assert found.affine and found.running_statistics and found.reduced_axes == ()
    assert "in evaluation alone" in found.reasons["nearest_torch"]


class Divides(Frozen):
    """By the variance."""

    def rstd(self):
        return 1 / (self.running_var + self.eps)


@pytest.mark.parametrize("make", [Moves, ForgetsMean, Divides, nn.Identity])
def test_what_is_none_has_another_name(make):
    assert identify(make(), shape=(2, 6, 5, 4)).family in (None, "identity")
    assert identify(nn.BatchNorm2d(6).eval(), shape=(2, 6, 5, 4)).family == "batch_norm"
