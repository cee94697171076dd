"""The norms after 2016 against their formulas, in four kinds of gradients, and their mistakes."""

import inspect

import pytest
import torch
from later import LATER
from torch import Tensor

from normlab import layers
from normlab.checks import error_budget, max_error

REGIMES = {
    "unit": {"rms": 1.0},
    "tiny": {"rms": 3e-3},
    "shifted": {"rms": 1.0, "mean": 1e3},
}
every = pytest.mark.parametrize("norm", LATER, ids=str)


def upstream(norm, seed=9) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(norm.shape, generator=g, dtype=torch.float64)


def relative_errors(norm, function, dtype=torch.float64, **regime) -> dict[str, float]:
    tensors, dy = norm.tensors(**regime), upstream(norm)
    expected = norm.expected(tensors, dy)
    got = norm.run(function, tensors, dy, dtype)
    return {
        name: max_error(got[name], value) / max(value.abs().max().item(), 1e-3)
        for name, value in expected.items()
    }


@every
@pytest.mark.parametrize("regime", REGIMES)
def test_float64_is_the_textbook_formula(norm, regime):
    """Two implementations without common code, output and gradients."""
    # of a mean of 1e3 the square keeps 10 digits fewer than float64 has
    allowed = 1e-9 if regime == "shifted" else 1e-12
    errors = relative_errors(norm, norm.layer, **REGIMES[regime])
    assert max(errors.values()) < allowed, errors


MISTAKES = [(norm, label) for norm in LATER for label in norm.mutants]


@pytest.mark.parametrize(("norm", "label"), MISTAKES, ids=[f"{n}: {m}" for n, m in MISTAKES])
def test_mistakes_are_far_from_the_textbook_formula(norm, label):
    worst = max(
        max(relative_errors(norm, norm.mutants[label], **regime).values())
        for regime in (REGIMES["unit"], REGIMES["tiny"])
    )
    assert worst > 1e-4


@every
@pytest.mark.parametrize("regime", ["unit", "tiny", "shifted"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rounding(norm, regime, dtype):
    """At most twice the error of the textbook formula, or 4 ulp of the largest value."""
    ours, theirs, largest = {}, {}, {}
    scale = dict(REGIMES[regime])
    if dtype != torch.float32 and "mean" in scale:
        scale["mean"] = 30.0  # a 16-bit number near 1e3 has no digits left for the spread
    for seed in range(3):
        dy = upstream(norm, seed).to(dtype).double()
        tensors = {k: v.to(dtype).double() for k, v in norm.tensors(**scale, seed=seed).items()}
        expected = norm.expected(tensors, dy)
        got = norm.run(norm.layer, tensors, dy, dtype)
        plain = norm.run(norm.textbook, tensors, dy, dtype)
        for name, value in expected.items():
            ours[name] = max(ours.get(name, 0.0), max_error(got[name], value))
            theirs[name] = max(theirs.get(name, 0.0), max_error(plain[name], value))
            if name not in largest or value.abs().max() > largest[name].abs().max():
                largest[name] = value
    allowed = {k: error_budget(largest[k], dtype, theirs[k]) for k in ours}
    assert all(ours[k] <= allowed[k] for k in ours), (ours, allowed)


@every
def test_finite_differences_and_double_backward(norm):
    tensors = norm.tensors(seed=2)
    given = [tensors[n].clone().requires_grad_(n in norm.learned) for n in tensors]

    def call(*arguments):
        frozen = [
            a.clone() if n in norm.constant else a for n, a in zip(tensors, arguments, strict=True)
        ]
        return norm.layer(*frozen, **norm.fixed)

    if norm.constant:  # r and d are constants of the gradient, not of the value
        return_value = call(*given)
        (dx,) = torch.autograd.grad(return_value, given[0], upstream(norm), create_graph=True)
        (second,) = torch.autograd.grad(dx.square().sum(), given[0])
        assert second.isfinite().all() and second.abs().max() > 1e-6
        return
    assert torch.autograd.gradcheck(call, given)
    assert torch.autograd.gradgradcheck(call, given)


CHANGES = {
    "rescale": lambda x: 3.0 * x,
    "shift": lambda x: x + 2.0,
    "rescale sample": lambda x: x * torch.arange(1.0, len(x) + 1).view(-1, *(1,) * (x.dim() - 1)),
    "rescale channel": lambda x: (
        x * torch.arange(1.0, x.shape[1] + 1).view(-1, *(1,) * (x.dim() - 2))
    ),
}


@every
@pytest.mark.parametrize("change", CHANGES)
def test_invariances_present_and_absent(norm, change):
    """Where a factor or shift is said to be lost, it is; where not, it shows."""
    tensors = norm.tensors(seed=4)
    without_eps = {} if "eps" not in inspect.signature(norm.layer).parameters else {"eps": 1e-30}
    fixed = {**norm.fixed, **(without_eps if norm.same else {})}
    fresh = [t.clone() for t in list(tensors.values())[1:]]
    before = norm.layer(tensors["input"], *[t.clone() for t in fresh], **fixed)
    after = norm.layer(CHANGES[change](tensors["input"]), *fresh, **fixed)
    difference = (after - before).abs().max().item()
    if change in norm.same:
        assert difference < 1e-12
    elif change in norm.other:
        assert difference > 1e-2


def test_each_claim_of_an_invariance_is_tried():
    for norm in LATER:
        assert norm.other, norm
        assert {*norm.same, *norm.other} <= set(CHANGES)


# --- facts of the papers and of the fact sheets


def test_pointwise_maps_are_bounded_and_have_a_diagonal_jacobian():
    x = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for layer in (layers.DyT(6).double(), layers.Derf(6).double()):
        with torch.no_grad():
            layer.weight.copy_(torch.linspace(-2, 2, 6))
            layer.bias.fill_(0.3)
            assert (layer(100 * x).abs() <= layer.weight.abs() + layer.bias.abs()).all()
        jacobian = torch.autograd.functional.jacobian(layer, x)
        assert jacobian.fill_diagonal_(0).abs().max() == 0
    normalized = torch.autograd.functional.jacobian(layers.LayerNorm(6).double(), x)
    assert normalized.fill_diagonal_(0).abs().max() > 0.05


@pytest.mark.parametrize(
    ("module", "spreads"),
    [(layers.DyT, (0.42, 0.80, 0.95)), (layers.Derf, (0.46, 0.84, 0.96))],
)
def test_pointwise_outputs_grow_with_the_input(module, spreads):
    x = torch.randn(200_000, 1, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        got = [module(1)(sigma * x).std().item() for sigma in (1, 4, 16)]
    assert got == pytest.approx(spreads, abs=0.01)


def test_scale_norm_gives_one_length_and_is_rms_norm():
    x = torch.randn(5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    layer = layers.ScaleNorm(16).double()
    assert layer.weight.shape == ()
    torch.testing.assert_close(layer(x).norm(dim=-1), torch.full((5,), 4.0, dtype=torch.float64))
    torch.testing.assert_close(layer(x), layers.rms_norm(x, (16,), eps=0.0))
    assert layers.scale_norm(torch.zeros(2, 3)).abs().max() == 0


def test_filter_response_norm_of_one_position_is_a_sign():
    x = torch.randn(4, 5, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    y = layers.filter_response_norm(x)
    assert (y - x.sign()).abs().max() < 2e-3
    learned = torch.full((5,), -4.0, dtype=torch.float64)  # its magnitude is taken
    softened = layers.filter_response_norm(x, eps=learned)
    torch.testing.assert_close(softened, x / (x.square() + 4).sqrt())


def test_global_response_norm_is_a_contrast_between_channels():
    x = torch.randn(2, 5, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    assert torch.equal(layers.GlobalResponseNorm(5).double()(x), x)
    ones = torch.ones(5, dtype=torch.float64)
    relative = (layers.global_response_norm(x, ones, eps=0.0) - x) / x
    torch.testing.assert_close(relative[:, :, 0, 0].sum(1), torch.full((2,), 5.0).double())
    double = layers.global_response_norm(2 * x, ones, eps=0.0)
    torch.testing.assert_close(double, 2 * layers.global_response_norm(x, ones, eps=0.0))
    zeros = torch.zeros(1, 5, 2, 2, requires_grad=True)
    layers.global_response_norm(zeros).sum().backward()
    assert zeros.grad.isfinite().all()


def make_batch():
    g = torch.Generator().manual_seed(5)
    x = 2 + 1.5 * torch.randn(16, 4, 3, dtype=torch.float64, generator=g)
    mean = torch.randn(4, dtype=torch.float64, generator=g)
    return x, mean, 0.5 + torch.rand(4, dtype=torch.float64, generator=g)


def test_batch_renorm_without_correction_is_batch_norm():
    x, mean, var = make_batch()
    got = layers.batch_renorm(x, mean.clone(), var.clone(), training=True, r_max=1.0, d_max=0.0)
    torch.testing.assert_close(got, layers.batch_norm(x, None, None, training=True))


def test_batch_renorm_within_its_bounds_is_evaluation():
    x, mean, var = make_batch()
    evaluated = layers.batch_norm(x, mean.clone(), var.clone())
    got = layers.batch_renorm(x, mean, var, training=True, r_max=1e3, d_max=1e3)
    torch.testing.assert_close(got, evaluated, rtol=1e-14, atol=1e-14)


def test_batch_renorm_keeps_the_state_of_batch_norm():
    x, _, _ = make_batch()
    ours, theirs = layers.BatchRenorm1d(4).double(), torch.nn.BatchNorm1d(4).double()
    for module in (ours, theirs):
        module(x)
        module(x[:5])
    theirs.load_state_dict(ours.state_dict())
    assert ours.num_batches_tracked == 2
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))
    assert layers.BatchRenorm2d(4).double()(x[..., None]).shape == (16, 4, 3, 1)


def test_gradient_of_scale_norm_has_no_radial_part():
    x = torch.randn(5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    x.requires_grad_()
    layers.scale_norm(x).backward(upstream_of(x))
    assert (x.grad * x).sum(-1).abs().max() < 1e-14


def upstream_of(x):
    return torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(7))


MODULES = [
    (layers.DyT, (4,), (3, 4)),
    (layers.DyT, ((3, 4),), (2, 3, 4)),
    (layers.Derf, (4,), (3, 4)),
    (layers.ScaleNorm, (4,), (2, 3, 4)),
    (layers.FilterResponseNorm, (4,), (2, 4, 3)),
    (layers.GlobalResponseNorm, (4,), (2, 4, 3, 5)),
    (layers.BatchRenorm1d, (4,), (3, 4)),
    (layers.BatchRenorm2d, (4,), (2, 4, 3, 5)),
    (layers.ZeroCenteredRMSNorm, (4,), (3, 4)),
]


@pytest.mark.parametrize(("module", "args", "shape"), MODULES)
def test_modules(module, args, shape):
    """Every parameter has a gradient, the state loads again, and the text names the sizes."""
    g = torch.Generator().manual_seed(8)
    layer = module(*args, dtype=torch.float64)
    x = torch.randn(shape, generator=g, dtype=torch.float64)
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    y = layer(x)
    y.backward(torch.randn(shape, generator=g, dtype=torch.float64))
    assert y.shape == x.shape
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in layer.parameters())
    again = module(*args, dtype=torch.float64)
    again.load_state_dict(layer.state_dict())
    torch.testing.assert_close(again.eval()(x), layer.eval()(x))
    layer.reset_parameters()
    assert "4" in repr(layer)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: layers.dyt(torch.ones(2, dtype=torch.int64), torch.ones(())), TypeError, "input"),
        (lambda: layers.dyt(torch.ones(2, 3), torch.ones(2)), ValueError, "alpha.*one number"),
        (lambda: layers.dyt(torch.ones(2, 3), torch.ones(()), torch.ones(2)), ValueError, "3"),
        (
            lambda: layers.derf(torch.ones(2, 3), torch.ones(()), torch.ones(3)),
            ValueError,
            "shift.*one number",
        ),
        (lambda: layers.scale_norm(torch.ones(2, 3), torch.ones(3)), ValueError, "rms_norm"),
        (lambda: layers.scale_norm(torch.ones(())), ValueError, "last axis"),
        (lambda: layers.scale_norm(torch.ones(3, dtype=torch.int32)), TypeError, "input.float"),
        (lambda: layers.ScaleNorm(4)(torch.ones(2, 3)), ValueError, r"\(\*, 4\)"),
        (lambda: layers.filter_response_norm(torch.ones(2, 3)), ValueError, "unsqueeze"),
        (
            lambda: layers.filter_response_norm(torch.ones(2, 3, 4), torch.ones(4)),
            ValueError,
            "weight",
        ),
        (lambda: layers.GlobalResponseNorm(4)(torch.ones(2, 3, 4, 4)), ValueError, "movedim"),
        (
            lambda: layers.batch_renorm(
                torch.ones(2, 3), torch.zeros(3), torch.ones(3), training=True, r_max=0.5
            ),
            ValueError,
            "r_max.*1",
        ),
        (
            lambda: layers.batch_renorm(
                torch.ones(2, 3), torch.zeros(3), torch.ones(3), training=True, d_max=-1
            ),
            ValueError,
            "d_max.*0",
        ),
        (
            lambda: layers.batch_renorm(
                torch.ones(1, 3), torch.zeros(3), torch.ones(3), training=True
            ),
            ValueError,
            "one value per channel",
        ),
        (lambda: layers.BatchRenorm1d(3, track_running_stats=False), ValueError, "BatchNorm1d"),
        (lambda: layers.BatchRenorm2d(3)(torch.ones(2, 3)), ValueError, "4D"),
    ],
)
def test_errors_name_the_argument(call, error, words):
    with pytest.raises(error, match=words):
        call()
