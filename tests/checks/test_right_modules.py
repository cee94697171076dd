"""Right modules in many styles: check_layer must not raise a false alarm."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_version import script

from normlab import doctor, identify
from normlab.checks import check_layer


class LlamaStyle(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        dtype = hidden_states.dtype
        h = hidden_states.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * h.to(dtype)


class T5Style(nn.Module):
    """Upcasts the statistics alone, and casts to the weight's dtype."""

    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.variance_epsilon = eps

    def forward(self, x):
        var = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(var + self.variance_epsilon)
        if self.weight.dtype in (torch.float16, torch.bfloat16):
            x = x.to(self.weight.dtype)
        return self.weight * x


class GemmaStyle(nn.Module):
    """The stored weight is the factor minus one."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return (h * (1.0 + self.weight.float())).type_as(x)


class ChannelsFirst(nn.LayerNorm):
    """Layer norm over the channels of images, as timm's LayerNorm2d."""

    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        return super().forward(x).permute(0, 3, 1, 2)


class ChannelsFirstByHand(nn.Module):
    """The same with broadcasting, as ConvNeXt's."""

    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        u = h.mean(1, keepdim=True)
        s = (h - u).pow(2).mean(1, keepdim=True)
        h = (h - u) / torch.sqrt(s + self.eps)
        return (self.weight[:, None, None] * h + self.bias[:, None, None]).to(x.dtype)


class Shaped(nn.Module):
    """LayerNorm over (1, 1, D) parameters."""

    def __init__(self, size):
        super().__init__()
        self.g = nn.Parameter(torch.ones(1, 1, size))
        self.b = nn.Parameter(torch.zeros(1, 1, size))
        self.epsilon = 1e-4

    def forward(self, x):
        h = x.double()
        mean = h.mean(-1, keepdim=True)
        var = (h * h).mean(-1, keepdim=True) - mean * mean  # in float64 nothing cancels
        return ((h - mean) / (var + self.epsilon).sqrt() * self.g + self.b).to(x.dtype)


class Frozen(nn.Module):
    """Weight and bias are buffers."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("weight", torch.ones(size))
        self.register_buffer("bias", torch.zeros(size))
        self.register_buffer("eps", torch.tensor(1e-3))

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, float(self.eps))


class Residue(nn.Module):
    """BatchNorm whose buffers have names of their own, updated by assignment."""

    def __init__(self, size, rate=0.1, eps=1e-5):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, size, 1))
        self.shift = nn.Parameter(torch.zeros(1, size, 1))
        self.register_buffer("center", torch.zeros(size))
        self.register_buffer("spread", torch.ones(size))
        self.rate, self.eps = rate, eps

    def forward(self, x):
        h = x.float()
        m, v = self.center, self.spread
        if self.training:
            m, v = h.mean((0, 2)), h.var((0, 2), correction=0)
            n = h.shape[0] * h.shape[2]
            self.center = self.center + self.rate * (m.detach() - self.center)
            self.spread = self.spread + self.rate * (v.detach() * n / (n - 1) - self.spread)
        h = (h - m[:, None]) / (v[:, None] + self.eps).sqrt()
        return (h * self.scale + self.shift).to(x.dtype)


class Sequences(nn.Module):
    """BatchNorm1d for (N, T, C), by transposing twice."""

    def __init__(self, size):
        super().__init__()
        self.inner = nn.BatchNorm1d(size)

    def forward(self, x):
        return self.inner(x.transpose(1, 2).contiguous()).transpose(1, 2)


class Groups(nn.Module):
    """GroupNorm as one batch norm over a folded batch, without running statistics."""

    def __init__(self, groups, size, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(1, size, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, size, 1, 1))
        self.groups, self.eps = groups, eps

    def forward(self, x):
        h = x.reshape(1, len(x) * self.groups, -1)
        h = F.batch_norm(h, None, None, training=True, eps=self.eps).reshape(x.shape)
        return h * self.gamma + self.beta


class HalfRefused(nn.LayerNorm):
    def forward(self, x):
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return super().forward(x)


class Float32Parameters(nn.LayerNorm):
    """Keeps its parameters in float32 beside 16-bit input."""

    def forward(self, x):
        if self.weight.dtype != torch.float32:
            raise TypeError("the parameters stay in float32")
        w, b = self.weight, self.bias
        return F.layer_norm(x.float(), self.normalized_shape, w, b, self.eps).to(x.dtype)


class Subclass(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps).to(
            x.dtype
        )


def lazy():
    module = nn.LazyBatchNorm2d()
    module(torch.randn(2, 5, 3, 3))
    return module


def frozen():
    module = nn.LayerNorm(6)
    module.requires_grad_(False)
    return module


MODULES = {
    "llama": ("rms_norm", lambda: LlamaStyle(8), {}),
    "llama declared": ("rms_norm", lambda: LlamaStyle(8), {"weight_cast": "after"}),
    "t5": ("rms_norm", lambda: T5Style(8), {}),
    "gemma": ("rms_norm", lambda: GemmaStyle(8), {"weight_offset": 1}),
    "gemma declared": (
        "rms_norm",
        lambda: GemmaStyle(8),
        {"weight_offset": 1, "weight_cast": "before", "eps": 1e-6},
    ),
    "channels first": ("layer_norm", lambda: ChannelsFirst(6), {}),
    "channels first, shape": ("layer_norm", lambda: ChannelsFirst(6), {"shape": (2, 6, 5, 4)}),
    "channels first by hand": ("layer_norm", lambda: ChannelsFirstByHand(6), {}),
    "shaped": ("layer_norm", lambda: Shaped(7), {}),
    "frozen buffers": ("layer_norm", lambda: Frozen(7), {}),
    "frozen parameters": ("layer_norm", frozen, {}),
    "residue": ("batch_norm", lambda: Residue(5), {}),
    "residue, flax": ("batch_norm", lambda: Residue(5, rate=0.01, eps=1e-3), {"momentum": 0.01}),
    "groups": ("group_norm", lambda: Groups(3, 6), {}),
    "half refused": ("layer_norm", lambda: HalfRefused(6), {}),
    "float32 parameters": ("layer_norm", lambda: Float32Parameters(6), {}),
    "subclass": ("layer_norm", lambda: Subclass((3, 4)), {}),
    "lazy": ("batch_norm", lazy, {}),
    "sync": ("batch_norm", lambda: nn.SyncBatchNorm(5), {}),
    "double": ("layer_norm", lambda: nn.LayerNorm(6).double(), {}),
    "evaluating": ("batch_norm", lambda: nn.BatchNorm1d(6).eval(), {}),
    "compiled batch": (
        "batch_norm",
        lambda: torch.compile(nn.BatchNorm2d(5), backend="aot_eager"),
        {},
    ),
    "large": ("layer_norm", lambda: nn.LayerNorm(256), {"shape": (32, 128, 256)}),
    "large images": ("batch_norm", lambda: nn.BatchNorm2d(16), {"shape": (16, 16, 32, 32)}),
    "scripted": ("rms_norm", lambda: script(LlamaStyle(8)), {}),
    "images, nothing to go by but attributes": ("instance_norm", lambda: nn.InstanceNorm2d(6), {}),
    "volumes": ("instance_norm", lambda: nn.InstanceNorm3d(6), {}),
    "one layer in a row": ("rms_norm", lambda: nn.Sequential(nn.Identity(), nn.RMSNorm(8)), {}),
}

TORCH = {
    "LayerNorm": ("layer_norm", [{"normalized_shape": 6}, {"normalized_shape": (4, 1, 1)}]),
    "RMSNorm": ("rms_norm", [{"normalized_shape": 6}, {"normalized_shape": (3, 4), "eps": 1e-12}]),
    "GroupNorm": ("group_norm", [{"num_groups": g, "num_channels": 6} for g in (1, 2, 6)]),
    "BatchNorm1d": ("batch_norm", [{"num_features": 6}]),
    "BatchNorm2d": ("batch_norm", [{"num_features": 6}]),
    "BatchNorm3d": ("batch_norm", [{"num_features": 6}]),
    "InstanceNorm1d": ("instance_norm", [{"num_features": 6}]),
    "InstanceNorm2d": ("instance_norm", [{"num_features": 6}]),
    "InstanceNorm3d": ("instance_norm", [{"num_features": 6}]),
}
VARIANTS = {
    "layer_norm": [{}, {"eps": 1e-12}, {"bias": False}, {"elementwise_affine": False}],
    "rms_norm": [{}, {"elementwise_affine": False}],
    "group_norm": [{}, {"eps": 1e-3}, {"affine": False}],
    "batch_norm": [
        {},
        {"affine": False},
        {"momentum": None},
        {"momentum": 1.0},
        {"track_running_stats": False, "eps": 1e-3},
    ],
    "instance_norm": [{}, {"affine": True}, {"track_running_stats": True}],
}
VARIANTS["instance_norm"].append({"affine": True, "track_running_stats": True, "momentum": None})


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", MODULES)
def test_right_modules_pass(name):
    like, make, options = MODULES[name]
    module = make()
    before = copy.deepcopy(module.state_dict())
    report = check_layer(module, like=like, **options)
    assert report.passed, str(report)
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


@pytest.mark.parametrize(
    ("name", "arguments", "variant"),
    [(n, a, v) for n, (like, many) in TORCH.items() for a in many for v in VARIANTS[like]],
    ids=str,
)
def test_every_variant_of_torchs_modules_passes(name, arguments, variant):
    rank = {"1d": 3, "2d": 4, "3d": 5}.get(name[-2:], 4 if name == "GroupNorm" else 3)
    like = TORCH[name][0]
    shape = (3, 6, 4, 5, 2)[:rank]
    if "normalized_shape" in arguments:
        trailing = arguments["normalized_shape"]
        shape = (5, 3, *(trailing if isinstance(trailing, tuple) else (trailing,)))
    module = getattr(nn, name)(**arguments, **variant)
    report = check_layer(module, like=like, shape=shape, double_backward=like != "batch_norm")
    assert report.passed, str(report)


def test_a_gradient_that_does_not_exist_is_noted():
    report = check_layer(Frozen(7), like="layer_norm")
    assert sum("not a parameter" in note for note in report.notes) == 2
    report = check_layer(HalfRefused(6), like="layer_norm")
    assert [sentence.split()[1] for sentence in report.untested] == [
        "torch.bfloat16",
        "torch.float16",
    ]
    assert all("float32 only" in sentence for sentence in report.untested)


def test_the_transposed_batch_norm_is_not_one_over_channels():
    """Its channel axis is the last one, which no argument of torch's batch norms can say."""
    report = check_layer(Sequences(5), like="batch_norm", shape=(4, 3, 5))
    assert [f.mistake for f in report.failures] == ["parameter_shape"]
    assert "(5,)" in str(report)
    assert "(3,)" in str(report)


def test_a_lazy_module_is_asked_to_run_first():
    with pytest.raises(ValueError, match="layer: its parameters have no shape yet; call it"):
        check_layer(nn.LazyBatchNorm1d(), like="batch_norm")
    with pytest.raises(ValueError, match="layer: its parameters have no shape yet; call it"):
        identify(nn.LazyBatchNorm1d(), shape=(4, 3))
    with pytest.raises(ValueError, match="model: its parameters have no shape yet; call it"):
        doctor(nn.Sequential(nn.LazyBatchNorm1d()), torch.randn(4, 3))
