"""check_layer: layers that are wrong in one use alone, each beside a right twin."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab import check_layer


class Layer(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.eps, self.kept = 1e-5, None
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def normalize(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def compute(self, x, mean):
        f = x.float()
        rstd = (f.var(-1, keepdim=True, correction=0) + self.eps).rsqrt()
        return ((f - mean) * rstd * self.weight.float() + self.bias.float()).to(x.dtype)


class RoundedMean(Layer):
    def forward(self, x):
        return self.compute(x, x.float().mean(-1, True).to(x.dtype).float())


class WideMean(Layer):
    def forward(self, x):
        return self.compute(x, x.float().mean(-1, True))


class AxisBySize(Layer):
    def forward(self, x):
        axis = [*x.shape].index(16)
        y = x - x.mean(axis, True)
        return y * (y.square().mean(axis, True) + self.eps).rsqrt() * self.weight + self.bias


class Memo(Layer):
    """What it keeps belongs to an address, in evaluation or in training."""

    mode = False

    def forward(self, x):
        if self.training != self.mode:
            return self.normalize(x)
        key = self.key(x)
        if self.kept is None or self.kept[0] != key:
            self.kept = key, x, *torch.var_mean(x, -1, keepdim=True, correction=0)
        rstd = (self.kept[2] + self.eps).rsqrt()
        return (x - self.kept[3]) * rstd * self.weight + self.bias

    def key(self, x):
        return x.data_ptr(), x.shape, x.dtype, x.requires_grad, torch.is_grad_enabled()


class MemoInTraining(Memo):
    mode = True


class MemoByVersion(Memo):
    """It notices that the input was changed in place."""

    def key(self, x):
        return *super().key(x), x._version


class Rows(Layer):
    def forward(self, x):
        rows = x.reshape(-1, 16)
        return torch.cat([self.normalize(rows[:8192]), rows[8192:]]).reshape(x.shape)


class HalfEvaluation(Layer):
    def forward(self, x):
        if self.training or x.dtype == torch.float32:
            return self.normalize(x)
        return F.layer_norm(x, (16,))


class HalfEvaluationOfBatches(nn.BatchNorm1d):
    def forward(self, x):
        y = super().forward(x)
        return y if self.training or x.dtype == torch.float32 else y + self.running_mean[0]


class GroupNormOfVolumes(nn.GroupNorm):
    def forward(self, x):
        y = super().forward(x)
        return -y if x.dim() == 5 else y


class LayerNormOfFive(nn.LayerNorm):
    def forward(self, x):
        y = super().forward(x)
        return -y if x.dim() == 5 else y


class LayerNormOfFour(nn.LayerNorm):
    """It refuses a fifth axis, as many do."""

    def forward(self, x):
        assert x.dim() < 5
        return super().forward(x)


class Folded(nn.BatchNorm1d):
    rstd = None

    def train(self, mode=True):
        self.rstd = None
        return super().train(mode)

    def forward(self, x):
        if self.training:
            return super().forward(x)
        if self.rstd is None:
            self.rstd = (self.running_var + self.eps).rsqrt()
        var = self.rstd**-2 - self.eps
        return F.batch_norm(x, self.running_mean, var, self.weight, self.bias, False, 0, self.eps)


class FoldedAnew(Folded):
    def load_state_dict(self, *args, **kwargs):
        self.rstd = None
        return super().load_state_dict(*args, **kwargs)


class OneOutput(Layer):
    """One buffer for the outputs that need no gradient."""

    def forward(self, x):
        y = self.normalize(x)
        if y.requires_grad:
            return y
        if self.kept is None or self.kept.shape != y.shape or self.kept.dtype != y.dtype:
            self.kept = torch.empty_like(y)
        return self.kept.copy_(y)


class OneOutputInTraining(OneOutput):
    def forward(self, x):
        return super().forward(x) if self.training else self.normalize(x)


class ForgetsWithoutGradient(Layer):
    def forward(self, x):
        if torch.is_grad_enabled():
            return self.normalize(x)
        return F.layer_norm(x, (16,), None, self.bias)


class OneScratch(OneOutput):
    def forward(self, x):
        return super().forward(x).clone()


class Stops(nn.BatchNorm1d):
    def forward(self, x):
        before = self.running_var.clone()
        y = super().forward(x)
        if self.training and self.num_batches_tracked > 10:
            self.running_var.copy_(before)
        return y


class Uncounted(nn.BatchNorm1d):
    def forward(self, x):
        mean, var, momentum = self.running_mean, self.running_var, self.momentum
        return F.batch_norm(x, mean, var, self.weight, self.bias, self.training, momentum, self.eps)


class Counted(Uncounted):
    def forward(self, x):
        if self.training:
            self.num_batches_tracked += 1
        return super().forward(x)


class Broadcast(Counted):
    """Its statistics have a shape that torch's layer cannot load."""

    def __init__(self, size):
        super().__init__(size)
        self.running_mean = torch.zeros(1, size, 1, 1)
        self.running_var = torch.ones(1, size, 1, 1)

    def _load_from_state_dict(self, *args):
        nn.Module._load_from_state_dict(self, *args)

    def forward(self, x):
        mean, var = self.running_mean.view(-1), self.running_var.view(-1)
        if self.training:
            self.num_batches_tracked += 1
        rate, mode = self.momentum, self.training
        return F.batch_norm(x, mean, var, self.weight, self.bias, mode, rate, self.eps)


class Untracked(nn.Module):
    def forward(self, x):
        var, mean = torch.var_mean(x.float(), 0, correction=0)
        return ((x - mean) * (var + 1e-5).rsqrt()).to(x.dtype)


WRONG = {
    RoundedMean: ("layer_norm", {}, "bfloat16, shifted input", "rounded to 16 bits"),
    AxisBySize: ("layer_norm", {}, "square input", "shape (16, 16) is off"),
    Memo: ("layer_norm", {}, "evaluation", "changed in place"),
    MemoInTraining: ("layer_norm", {}, "used again", "changed in place"),
    Rows: ("layer_norm", {"shape": (9000, 16)}, "shape as given", "shape (9000, 16) is off"),
    HalfEvaluation: ("layer_norm", {}, "bfloat16, evaluation", "another than in float32"),
    HalfEvaluationOfBatches: ("batch_norm", {}, "float16, evaluation", "another than in float32"),
    GroupNormOfVolumes: ("group_norm", {}, "five axes", "shape (2, 8, 3, 4, 2) is off"),
    LayerNormOfFive: ("layer_norm", {}, "five axes", "shape (2, 3, 4, 5, 16) is off"),
    Folded: ("batch_norm", {}, "saved state", "kept from before loading"),
    OneOutput: ("layer_norm", {}, "evaluation", "into the output of the first"),
    OneOutputInTraining: ("layer_norm", {}, "used again", "into the output of the first"),
    ForgetsWithoutGradient: ("layer_norm", {}, "used again", "without gradients is wrong"),
    Stops: ("batch_norm", {}, "running statistics", "after 12 batches"),
    Uncounted: ("batch_norm", {}, "saved state", "num_batches_tracked"),
    Broadcast: ("batch_norm", {"shape": (4, 6, 5, 3)}, "saved state", "(1, 6, 1, 1)"),
    Untracked: ("batch_norm", {"shape": (8, 6)}, "evaluation", "pass track_running_stats=False"),
}

RIGHT = {
    WideMean: ("layer_norm", {}),
    MemoByVersion: ("layer_norm", {}),
    LayerNormOfFour: ("layer_norm", {}),
    FoldedAnew: ("batch_norm", {}),
    OneScratch: ("layer_norm", {}),
    Counted: ("batch_norm", {}),
    Untracked: ("batch_norm", {"shape": (8, 6), "track_running_stats": False}),
}


def make(layer):
    sizes = {"group_norm": (2, 8), "batch_norm": (6,), "layer_norm": (16,)}
    like = (WRONG.get(layer) or RIGHT[layer])[0]
    return layer() if layer is Untracked else layer(*sizes[like])


@pytest.mark.parametrize("layer", WRONG, ids=lambda layer: layer.__name__)
def test_what_is_wrong_in_one_use_alone_is_named(layer):
    like, options, check, words = WRONG[layer]
    report = check_layer(make(layer), like=like, **options)
    assert check in {f.check for f in report.failures}, report
    assert any(words in f.message for f in report.failures), report


@pytest.mark.parametrize("layer", RIGHT, ids=lambda layer: layer.__name__)
def test_its_right_twin_passes(layer):
    like, options = RIGHT[layer]
    report = check_layer(make(layer), like=like, **options)
    assert report.passed, report


@pytest.mark.parametrize("make_torch", [nn.LayerNorm, nn.BatchNorm1d, nn.InstanceNorm1d])
def test_torch_passes_with_the_shape_as_given(make_torch):
    like = {"L": "layer_norm", "B": "batch_norm", "I": "instance_norm"}[make_torch.__name__[0]]
    shape = (5000, 7, 16) if like == "layer_norm" else (5000, 16, 7)
    report = check_layer(make_torch(16), like=like, shape=shape)
    assert report.passed, report
    assert "shape as given" in report.checks


def test_a_shape_too_large_to_try_as_given_is_noted():
    report = check_layer(nn.LayerNorm(1024), like="layer_norm", shape=(8192, 1024))
    assert report.passed, report
    assert any("(8192, 1024)" in note for note in report.notes), report


def test_a_caller_s_shape_keeps_other_ranks_out():
    report = check_layer(LayerNormOfFive(16), like="layer_norm", shape=(3, 16))
    assert report.passed, report


def test_the_situations_are_in_the_report_of_a_right_layer():
    checks = set(check_layer(nn.LayerNorm(16), like="layer_norm").checks)
    assert {"square input", "five axes", "float16, shifted input", "float16, evaluation"} <= checks
