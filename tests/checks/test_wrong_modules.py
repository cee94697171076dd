"""Wrong modules in several styles: state, evaluation, storage, handling."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab.checks import check_layer


def names(report):
    return {f.mistake for f in report.failures}


class Running(nn.Module):
    """A right batch norm in pieces that can be replaced, for 2, 3 or 4 axes."""

    momentum = 0.2

    def __init__(self, size):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(size))
        self.beta = nn.Parameter(torch.zeros(size))
        self.register_buffer("moving_mean", torch.zeros(size))
        self.register_buffer("moving_variance", torch.ones(size))

    def batch(self, x):
        axes = [0, *range(2, x.dim())]
        mean = x.mean(axes)
        var = (x - self.lift(mean, x)).pow(2).mean(axes)
        return mean, var, x.numel() // x.shape[1]

    @staticmethod
    def lift(v, x):
        return v.reshape(1, -1, *[1] * (x.dim() - 2))

    def record(self, mean, var, n):
        with torch.no_grad():
            m = self.momentum
            self.moving_mean.copy_((1 - m) * self.moving_mean + m * mean)
            self.moving_variance.copy_((1 - m) * self.moving_variance + m * var * n / (n - 1))

    def choose(self, x):
        if not self.training:
            return self.moving_mean, self.moving_variance
        mean, var, n = self.batch(x)
        self.record(mean, var, n)
        return mean, var

    def forward(self, x):
        h = x.float()
        mean, var = self.choose(h)
        h = (h - self.lift(mean, h)) * self.lift((var + 1e-5).rsqrt(), h)
        return (h * self.lift(self.gamma, h) + self.lift(self.beta, h)).to(x.dtype)


class Biased(Running):
    def record(self, mean, var, n):
        super().record(mean, var, float("inf")) if n == 0 else super().record(
            mean, var * (n - 1) / n, n
        )


class OldMomentum(Running):
    def record(self, mean, var, n):
        with torch.no_grad():
            self.moving_mean.mul_(self.momentum).add_(mean, alpha=1 - self.momentum)
            self.moving_variance.mul_(self.momentum).add_(
                var * n / (n - 1), alpha=1 - self.momentum
            )


class OldMomentumBiased(Running):
    def record(self, mean, var, n):
        with torch.no_grad():
            self.moving_mean.lerp_(mean, 1 - self.momentum)
            self.moving_variance.lerp_(var, 1 - self.momentum)


class OtherMomentum(Running):
    def record(self, mean, var, n):
        with torch.no_grad():
            self.moving_mean.lerp_(mean, 0.03)
            self.moving_variance.lerp_(var * n / (n - 1), 0.03)


class CountsSamples(Running):
    def batch(self, x):
        mean, var, _ = super().batch(x)
        return mean, var, x.shape[0]


class KeepsGraph(Running):
    def record(self, mean, var, n):
        m = self.momentum
        self.moving_mean = (1 - m) * self.moving_mean + m * mean
        self.moving_variance = (1 - m) * self.moving_variance + m * var * n / (n - 1)


class PlainAttributes(Running):
    def __init__(self, size):
        super().__init__(size)
        del self.moving_mean, self.moving_variance
        self.moving_mean, self.moving_variance = torch.zeros(size), torch.ones(size)


class NotPersistent(Running):
    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("moving_mean", torch.zeros(size), persistent=False)


class OddNamesLost(Running):
    """Running statistics as plain attributes under names that say nothing."""

    def __init__(self, size):
        super().__init__(size)
        del self.moving_mean, self.moving_variance
        self.center, self.spread = torch.zeros(size), torch.ones(size)

    def record(self, mean, var, n):
        self.center = self.center * 0.8 + 0.2 * mean.detach()
        self.spread = self.spread * 0.8 + 0.2 * var.detach() * n / (n - 1)

    def choose(self, x):
        if not self.training:
            return self.center, self.spread
        mean, var, n = self.batch(x)
        self.record(mean, var, n)
        return mean, var


class CountLost(Running):
    """A cumulative average whose number of batches is a Python int."""

    momentum = None

    def __init__(self, size):
        super().__init__(size)
        self.seen = 0

    def record(self, mean, var, n):
        self.seen += 1
        with torch.no_grad():
            self.moving_mean.lerp_(mean, 1 / self.seen)
            self.moving_variance.lerp_(var * n / (n - 1), 1 / self.seen)


class AlwaysBatch(Running):
    def choose(self, x):
        mean, var, n = self.batch(x)
        if self.training:
            self.record(mean, var, n)
        return mean, var


class BatchMeanOnly(Running):
    def choose(self, x):
        mean, var = super().choose(x)
        return (self.batch(x)[0] if not self.training else mean), var


class NoBuffers(Running):
    def __init__(self, size):
        super().__init__(size)
        del self.moving_mean, self.moving_variance

    def choose(self, x):
        return self.batch(x)[:2]


class RecordsInEvaluation(Running):
    def choose(self, x):
        mean, var = super().choose(x)
        if not self.training:
            self.record(*self.batch(x))
        return mean.clone(), var.clone()


class EvaluatesWithoutEps(Running):
    def choose(self, x):
        mean, var = super().choose(x)
        return mean, var if self.training else var - 1e-5


class SwappedModes(Running):
    def choose(self, x):
        mean, var, n = self.batch(x)
        if not self.training:
            self.record(mean, var, n)
            return mean, var
        return self.moving_mean, self.moving_variance


class Frozen(Running):
    def record(self, mean, var, n):
        pass


class RecordsEps(Running):
    def record(self, mean, var, n):
        super().record(mean, var + 1e-5, n)


class KeepsFold(Running):
    """What evaluation uses is computed once."""

    fold = None

    def choose(self, x):
        if self.training:
            return super().choose(x)
        if self.fold is None:
            self.fold = self.moving_mean.clone(), self.moving_variance.clone()
        return self.fold


class FirstReplaces(Running):
    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def record(self, mean, var, n):
        self.momentum = 0.2 if self.num_batches_tracked else 1.0
        super().record(mean, var, n)
        self.momentum = 0.2
        self.num_batches_tracked += 1


class Cumulative(FirstReplaces):
    def record(self, mean, var, n):
        self.num_batches_tracked += 1
        self.momentum = 1 / float(self.num_batches_tracked)
        Running.record(self, mean, var, n)
        self.momentum = 0.2


class KeepsStatisticsOfTraining(Running):
    """Loading does not reach what evaluation uses after a step."""

    kept = None

    def choose(self, x):
        if not self.training:
            return self.kept or (self.moving_mean, self.moving_variance)
        mean, var, n = self.batch(x)
        self.kept = self.moving_mean.clone(), self.moving_variance.clone()
        self.record(mean, var, n)
        return mean, var


@pytest.mark.parametrize("shape", [(6, 5), (3, 5, 4, 2), (8, 5, 32, 32)], ids=str)
@pytest.mark.parametrize(
    ("make", "mistakes"),
    [
        (Biased, {"running_var_biased"}),
        (OldMomentum, {"momentum_reversed"}),
        (OldMomentumBiased, {"momentum_reversed+running_var_biased"}),
        (OtherMomentum, {"other_momentum"}),
        (KeepsGraph, {"running_in_graph"}),
        (PlainAttributes, {"state_lost"}),
        (NotPersistent, {"state_lost"}),
        (OddNamesLost, {"state_lost"}),
        (CountLost, {"state_lost"}),
        (AlwaysBatch, {"eval_uses_batch"}),
        (BatchMeanOnly, {"eval_uses_batch"}),
        (NoBuffers, {"eval_uses_batch"}),
        (RecordsInEvaluation, {"eval_updates"}),
        (EvaluatesWithoutEps, {"other_eps"}),
        (Frozen, {"not_updated"}),
        (RecordsEps, {"running_var_with_eps"}),
        (KeepsFold, {"eval_stale"}),
        (KeepsStatisticsOfTraining, {"eval_stale"}),
        (FirstReplaces, {"first_replaces"}),
        (Cumulative, {"cumulative"}),
    ],
)
def test_wrong_running_statistics_are_named(make, mistakes, shape):
    options = {} if make is not OddNamesLost else {"momentum": 0.2}
    report = check_layer(make(5), like="batch_norm", shape=shape, **options)
    assert names(report) >= mistakes, str(report)
    extra = {"eval_updates"} if make is KeepsGraph else set()
    assert names(report) <= mistakes | extra | {"eval_differs"}, str(report)


def test_a_biased_variance_is_seen_in_a_large_input_that_cannot_be_made_smaller():
    class OneShape(Biased):
        def forward(self, x):
            if x.shape != (8, 5, 32, 32):
                raise ValueError("another shape")
            return super().forward(x)

    report = check_layer(OneShape(5), like="batch_norm", shape=(8, 5, 32, 32))
    assert "running_var_biased" in names(report), str(report)


@pytest.mark.parametrize("shape", [(6, 5), (3, 5, 4, 2), (8, 5, 32, 32)], ids=str)
def test_the_same_without_a_mistake_passes(shape):
    report = check_layer(Running(5), like="batch_norm", shape=shape)
    assert report.passed, str(report)


def test_bessel_over_samples_is_named_where_it_differs():
    report = check_layer(CountsSamples(5), like="batch_norm", shape=(3, 5, 4, 2))
    assert names(report) == {"running_var_count"}, str(report)


def test_swapped_modes_are_rejected():
    report = check_layer(SwappedModes(5), like="batch_norm", shape=(6, 5))
    assert not report.passed


def test_a_module_that_ran_before_with_a_graph_is_named():
    module = KeepsGraph(5)
    module(torch.randn(6, 5, requires_grad=True))
    report = check_layer(module, like="batch_norm", shape=(6, 5))
    assert "running_in_graph" in names(report), str(report)
    assert module.moving_mean.grad_fn is not None


# --- modules without running statistics ---------------------------------------------------------


class InList(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.parts = [nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))]

    def forward(self, x):
        return F.layer_norm(x, self.parts[0].shape, *self.parts)


class PlainTensor(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.ones(size, requires_grad=True)
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight.to(x.dtype), self.bias)


class LostWeight(nn.LayerNorm):
    def state_dict(self, *args, **kwargs):
        state = super().state_dict(*args, **kwargs)
        state["bias"] = torch.zeros_like(state["bias"])
        return state


class AddsOne(nn.LayerNorm):
    """For files that keep the weight less 1, which it does not save itself."""

    def _load_from_state_dict(self, state, prefix, *rest):
        state[prefix + "weight"] = state[prefix + "weight"] + 1
        super()._load_from_state_dict(state, prefix, *rest)


class DoublesBias(nn.LayerNorm):
    def _load_from_state_dict(self, state, prefix, *rest):
        state[prefix + "bias"] = state[prefix + "bias"] * torch.arange(6)
        super()._load_from_state_dict(state, prefix, *rest)


class KeepsFactor(nn.RMSNorm):
    """What multiplies in evaluation is computed once."""

    factor = None

    def forward(self, x):
        if self.training:
            return super().forward(x)
        if self.factor is None:
            self.factor = 1.0 * self.weight
        return F.rms_norm(x, self.normalized_shape, self.factor, self.eps)


class KeepsFactorOfTraining(nn.RMSNorm):
    """Evaluation takes the factor of the first call in training, if there was one."""

    factor = None

    def forward(self, x):
        if self.training and self.factor is None:
            self.factor = self.weight.detach().clone()
        weight = self.weight if self.training or self.factor is None else self.factor
        return F.rms_norm(x, self.normalized_shape, weight, self.eps)


class OtherInEvaluation(nn.RMSNorm):
    def forward(self, x):
        return super().forward(x) if self.training else F.rms_norm(x, self.normalized_shape)


class IgnoresEps(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias)


class WritesIntoInput(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        rms = (x.float().pow(2).mean(-1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()
        x /= rms.to(x.dtype)
        return x * self.scale


class WritesInEvaluation(nn.LayerNorm):
    def forward(self, x):
        y = super().forward(x)
        if not self.training:
            x.zero_()
        return y


class Views(nn.GroupNorm):
    def forward(self, x):
        rows = x.view(len(x), self.num_groups, -1).float()
        rows = rows - rows.mean(-1, keepdim=True)
        rows = rows / (rows.square().mean(-1, keepdim=True) + self.eps).sqrt()
        kept = (1, -1, *[1] * (x.dim() - 2))
        y = rows.view(x.shape) * self.weight.view(kept) + self.bias.view(kept)
        return y.to(x.dtype)


class ReadsMemory(nn.LayerNorm):
    def forward(self, x):
        flat = torch.as_strided(x, (x.numel(),), (1,), x.storage_offset())
        return super().forward(flat.view(x.shape))


class Doubles(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x).double()


class NoRows(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x) if x.numel() else x.new_zeros(0)


class SixtyFourOnly(nn.LayerNorm):
    def forward(self, x):
        if x.dtype != torch.float64:
            raise TypeError("expected float64")
        return super().forward(x)


class ReturnsPair(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x), x


class ThroughNumpy(nn.LayerNorm):
    def forward(self, x):
        h = x.detach().float().numpy()
        h = (h - h.mean(-1, keepdims=True)) / (h.var(-1, keepdims=True) + self.eps) ** 0.5
        return (torch.from_numpy(h) * self.weight + self.bias).to(x.dtype)


class HalfSquares(nn.RMSNorm):
    def forward(self, x):
        eps = torch.finfo(torch.float32).eps
        ms = x.pow(2).float().mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(ms + eps)).to(x.dtype) * self.weight


class HalfAlways(nn.LayerNorm):
    """Squares in bfloat16 whatever the input."""

    def forward(self, x):
        h = x.float() - x.float().mean(-1, keepdim=True)
        var = h.bfloat16().square().float().mean(-1, keepdim=True)
        return (h * (var + self.eps).rsqrt() * self.weight + self.bias).to(x.dtype)


@pytest.mark.parametrize(
    ("make", "like", "mistake", "words"),
    [
        (lambda: InList(6), "layer_norm", "unregistered", "neither parameters"),
        (lambda: PlainTensor(6), "layer_norm", "unregistered", "weight"),
        (lambda: LostWeight(6), "layer_norm", "state_lost", "after save and load"),
        (lambda: AddsOne(6), "layer_norm", "load_changes", "load_state_dict adds 1 to weight"),
        (lambda: DoublesBias(6), "layer_norm", "load_changes", "load_state_dict changes bias"),
        (lambda: KeepsFactor(6), "rms_norm", "eval_stale", "kept from before that step"),
        (lambda: KeepsFactorOfTraining(6), "rms_norm", "eval_stale", "from before that step"),
        (lambda: OtherInEvaluation(6), "rms_norm", "eval_differs", "evaluation"),
        (lambda: IgnoresEps(6, eps=1e-3), "layer_norm", "other_eps", "expected 0.001"),
        (lambda: WritesIntoInput(6), "rms_norm", "in_place", "in-place"),
        (lambda: WritesInEvaluation(6), "layer_norm", "in_place", "in-place"),
        (lambda: Views(2, 6), "group_norm", "non_contiguous", "reshape"),
        (lambda: ReadsMemory(6), "layer_norm", "non_contiguous", "strides"),
        (lambda: Doubles(6), "layer_norm", "output_dtype", "float64"),
        (lambda: NoRows(6), "layer_norm", "empty_input", "empty"),
        (lambda: ThroughNumpy(6), "layer_norm", "no_dx", "cut from the graph"),
        (lambda: HalfSquares(6), "rms_norm", "half_precision_statistics", "half precision"),
        (lambda: HalfAlways(6), "layer_norm", "half_precision_statistics", "half precision"),
    ],
)
def test_wrong_modules_are_named(make, like, mistake, words):
    report = check_layer(make(), like=like, shape=(3, 6, 4, 2) if like == "group_norm" else (5, 6))
    assert mistake in names(report), str(report)
    assert any(words in f.message for f in report.failures), str(report)
    allowed = {mistake} | ({"once"} if mistake == "in_place" else set())
    if mistake != "in_place":  # what comes after damage is not charged to anything
        assert names(report) <= allowed, str(report)


class AllButTheBatch(nn.LayerNorm):
    """Right for rows, wrong for sequences."""

    def forward(self, x):
        axes = tuple(range(1, x.dim()))
        var, mean = torch.var_mean(x.float(), axes, correction=0, keepdim=True)
        y = (x.float() - mean) * (var + self.eps).rsqrt() * self.weight + self.bias
        return y.to(x.dtype)


def test_a_layer_norm_that_is_right_for_rows_alone_is_named():
    assert check_layer(AllButTheBatch(6), like="layer_norm", shape=(5, 6)).passed
    report = check_layer(AllButTheBatch(6), like="layer_norm")
    assert names(report) == {"wrong_axis"}, str(report)
    assert "over axes (1, 2, 3), expected (3,)" in str(report)


def test_modules_taken_for_each_other_are_named():
    report = check_layer(nn.LayerNorm(6), like="rms_norm")
    assert names(report) == {"centered"}, str(report)
    report = check_layer(nn.RMSNorm(6, eps=1e-5), like="layer_norm")
    assert names(report) == {"missing_centering"}, str(report)
    report = check_layer(nn.GroupNorm(2, 6), like="instance_norm", shape=(4, 6, 5, 3))
    assert names(report) == {"wrong_grouping"}, str(report)
    report = check_layer(nn.InstanceNorm2d(6), like="batch_norm", shape=(4, 6, 5, 3))
    assert "wrong_axis" in names(report), str(report)
    report = check_layer(nn.Identity(), like="layer_norm", shape=(5, 6))
    assert names(report) == {"identity"}, str(report)


def test_a_module_that_returns_a_pair_could_not_be_tested():
    with pytest.raises(ValueError, match=r"the layer returns a tuple.*wrap it.*layer\(x\)\[0\]"):
        check_layer(ReturnsPair(6), like="layer_norm", shape=(5, 6))
    with pytest.raises(ValueError, match=r"is a tuple.*wrap it.*layer\(x\)\[0\]"):
        check_layer(ReturnsPair(6), like="layer_norm")
