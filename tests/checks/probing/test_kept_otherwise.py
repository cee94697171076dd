"""Parameters and statistics that a module keeps in another way than torch's."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from normlab import check_layer


class Packed(nn.Module):
    """Weight and bias in one parameter, along one of its two axes."""

    def __init__(self, size=8, axis=0, order=(0, 1)):
        super().__init__()
        rows = torch.ones(size), torch.zeros(size)
        self.packed = nn.Parameter(torch.stack([rows[k] for k in order], axis))
        self.axis, self.order = axis, order

    def forward(self, x):
        rows = self.packed.unbind(self.axis)
        weight, bias = (rows[self.order.index(k)] for k in (0, 1))
        return F.layer_norm(x, x.shape[-1:], weight, bias)


class PackedGroups(Packed):
    num_groups = 2

    def forward(self, x):
        return F.group_norm(x, 2, *self.packed.unbind(self.axis))


@pytest.mark.parametrize("options", [{}, {"shape": (4, 8)}])
@pytest.mark.parametrize(
    ("layer", "like", "words"),
    [
        (Packed(), "layer_norm", r"packed of shape \(2, 8\) .*\[weight, bias\], 0\)"),
        (Packed(axis=1), "layer_norm", r"packed of shape \(8, 2\) .*\[weight, bias\], 1\)"),
        (Packed(order=(1, 0)), "layer_norm", r"\[bias, weight\], 0\)"),
        (PackedGroups(), "group_norm", r"packed of shape \(2, 8\) holds weight and bias in one"),
    ],
)
def test_weight_and_bias_in_one_parameter_could_not_be_tested(layer, like, words, options):
    with pytest.raises(ValueError, match=f"could not be tested: .*{words}"):
        check_layer(layer, like=like, **options)


def test_what_is_said_to_do_about_a_packed_parameter_helps():
    layer = Packed()

    def apart(x, weight, bias):
        return torch.func.functional_call(layer, {"packed": torch.stack([weight, bias], 0)}, x)

    report = check_layer(apart, like="layer_norm", dtypes=["float32"])
    assert report.passed, report


def test_a_norm_over_two_rows_holds_no_bias_in_its_weight():
    assert check_layer(nn.LayerNorm((2, 8), bias=False), like="layer_norm").passed
    report = check_layer(nn.LayerNorm((2, 8), bias=False), like="layer_norm", divisor="n-1")
    assert not report.passed


class Exponential(nn.Module):
    def forward(self, weight):
        return weight.exp()


class Invertible(Exponential):
    def right_inverse(self, weight):
        return weight.log()


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


class IgnoresComputed(nn.LayerNorm):
    """It takes what is stored, and not what is computed from it."""

    def forward(self, x):
        weight = self.weight
        return F.layer_norm(x, self.normalized_shape, weight * weight, self.bias, self.eps)


def parametrized(module, how, name="weight"):
    parametrize.register_parametrization(module, name, how)
    return module


@pytest.mark.parametrize(
    ("make", "like"),
    [
        (lambda: parametrized(nn.LayerNorm(8), Exponential()), "layer_norm"),
        (lambda: parametrized(nn.LayerNorm(8), Invertible()), "layer_norm"),
        (lambda: parametrized(nn.RMSNorm(8), Doubled()), "rms_norm"),
        (lambda: parametrized(nn.GroupNorm(2, 8), Doubled(), "bias"), "group_norm"),
        (lambda: parametrized(nn.BatchNorm1d(6), Exponential()), "batch_norm"),
    ],
)
def test_a_parametrized_weight_is_read_under_its_own_name(make, like):
    module = make()
    before = {name: p.clone() for name, p in module.named_parameters()}
    report = check_layer(module, like=like)
    assert report.passed, report
    assert all(torch.equal(before[name], p) for name, p in module.named_parameters())


def test_a_wrong_layer_with_a_parametrized_weight_is_wrong():
    report = check_layer(parametrized(IgnoresComputed(8), Doubled()), like="layer_norm")
    assert not report.passed


class Statistics(nn.Module):
    """Running statistics as parameters without a gradient."""

    momentum = 0.1

    def __init__(self, size=6, *, names=("running_mean", "running_var"), rate=0.1):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.names, self.rate = names, rate
        for name, value in zip(names, (torch.zeros(size), torch.ones(size)), strict=True):
            setattr(self, name, nn.Parameter(value, requires_grad=False))

    def forward(self, x):
        mean, var = (getattr(self, name) for name in self.names)
        return F.batch_norm(x, mean, var, self.weight, self.bias, self.training, self.rate)


@pytest.mark.parametrize(
    "layer",
    [
        Statistics(),
        Statistics(names=("moving_mean", "moving_var")),
        Statistics(names=("mean_of_batches", "var_of_batches")).requires_grad_(False),
    ],
)
def test_running_statistics_may_be_parameters_without_a_gradient(layer):
    report = check_layer(layer, like="batch_norm")
    assert report.passed, report
    assert "running statistics" in report.checks


def test_wrong_running_statistics_that_are_parameters_are_named():
    report = check_layer(Statistics(rate=0.9), like="batch_norm")
    assert [f.mistake for f in report.failures] == ["momentum_reversed"], report


class SecondAxis(nn.Module):
    """Layer norm of sequences alone: axis 2 of three."""

    def __init__(self, axis=2):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        self.axis = axis

    def forward(self, x):
        h = x.float()
        h = h - h.mean(self.axis, keepdim=True)
        y = h * (h.square().mean(self.axis, keepdim=True) + 1e-5).rsqrt()
        return (y * self.weight + self.bias).to(x.dtype)


def test_a_layer_that_counts_axes_from_the_front_is_told_to_pass_a_shape():
    report = check_layer(SecondAxis(), like="layer_norm")
    assert "right for 3 axes: if they alone are meant, pass shape=" in str(report)
    assert "declare axis" not in str(report)
    assert check_layer(SecondAxis(), like="layer_norm", shape=(3, 4, 6)).passed
    assert "declare axis=1" in str(check_layer(SecondAxis(1), like="layer_norm", shape=(3, 4, 6)))
    assert "right for 2 axes" in str(check_layer(SecondAxis(1), like="layer_norm"))
