"""What the experiments of the RMSNorm chapter claim."""

import copy
import itertools

import pytest
import torch

from normlab.book.experiments.data.sequences import sequence_batches
from normlab.book.experiments.networks.transformer import make_transformer
from normlab.book.experiments.rms_norm import (
    language_model,
    norm_operations,
    norm_times,
    partial_rms,
    pre_rms_training,
    rms_conventions,
    stream_mean,
)
from normlab.book.experiments.rms_norm.pre_rms_conversion import (
    center_writers_,
    pre_norm_blocks,
    replace_norms,
    stream_writers,
    to_pre_rms_norm,
)
from normlab.book.experiments.sequence_training import norm_inputs
from normlab.checks import check_layer
from normlab.layers import LayerNorm, RMSNorm, layer_norm, rms_norm
from normlab.reference import rms_norm_jacobian


def _model(placement="pre_norm", eps=1e-5, **changes):
    model = make_transformer(placement, layers=2, seed=0, **changes).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # nothing stays 0 or 1, where mistakes of a conversion would hide
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.2 * noise)
    for module in model.modules():
        if isinstance(module, LayerNorm):
            module.eps = eps
    return model


@pytest.fixture
def tokens():
    return next(sequence_batches("reversal", seed=0))[0]


# The theorems.


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.5])
def test_layer_norm_is_rms_norm_after_centering(eps):
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 50, 16, generator=generator, dtype=torch.float64)
    centered = x - x.mean(-1, keepdim=True)
    expected = layer_norm(x, (16,), weight[0], eps=eps)
    torch.testing.assert_close(rms_norm(centered, (16,), weight[0], eps), expected)
    apart = (rms_norm(x, (16,), weight[0], eps) - expected).abs().amax(-1)
    assert ((apart > 1e-9) == (x.mean(-1).abs() > 1e-9)).all()


@pytest.mark.parametrize("features", [1, 2, 7, 16])
def test_jacobian_has_the_stated_spectrum(features):
    x = torch.randn(features, generator=torch.Generator().manual_seed(features)).double() + 0.3
    for eps in (0.0, 1e-3, 0.4):
        jacobian = torch.autograd.functional.jacobian(
            lambda v, eps=eps: rms_norm(v, (features,), eps=eps), x
        )
        closed = torch.tensor(rms_norm_jacobian(x.numpy(), eps))
        torch.testing.assert_close(jacobian, closed, rtol=0, atol=1e-13)
        rho = (x.square().mean() + eps).rsqrt()
        expected = torch.full((features,), float(rho), dtype=torch.float64)
        expected[0] = eps * rho**3
        torch.testing.assert_close(
            torch.linalg.eigvalsh(jacobian), expected.sort().values, rtol=1e-9, atol=1e-13
        )
        assert torch.linalg.matrix_rank(jacobian) == features - (eps == 0)


@pytest.mark.parametrize("keep_centering", [False, True])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.3])
def test_conversion_is_exact(tokens, eps, keep_centering):
    model = _model(eps=eps)
    logits = model(tokens).detach()
    converted = to_pre_rms_norm(model, keep_centering=keep_centering)
    assert not any(isinstance(module, LayerNorm) for module in converted.modules())
    assert sum(isinstance(module, RMSNorm) for module in converted.modules()) == 5
    torch.testing.assert_close(converted(tokens).detach(), logits, rtol=0, atol=1e-12)
    torch.testing.assert_close(model(tokens).detach(), logits, rtol=0, atol=0)
    naive = replace_norms(model)(tokens)
    assert (naive - logits).abs().max() > 0.01


def test_conversion_without_norm_parameters(tokens):
    model = _model()
    for block in model.blocks:
        block.norm = LayerNorm(32, elementwise_affine=False).double()
    model.norm = LayerNorm(32, bias=False).double()
    converted = to_pre_rms_norm(model)
    assert isinstance(converted.norm, RMSNorm)
    torch.testing.assert_close(converted(tokens), model(tokens), rtol=0, atol=1e-12)


def test_gradients_pass_through_the_kept_centering_only(tokens):
    model = _model()
    kept, once = to_pre_rms_norm(model, keep_centering=True), to_pre_rms_norm(model)
    dy = torch.randn(32, 12, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (module, _, _), (same, _, _), (other, _, _) = (
        stream_writers(m)[0] for m in (model, kept, once)
    )
    (expected,) = torch.autograd.grad(model(tokens), module.weight, dy)
    original = same.parametrizations.weight.original
    (through,) = torch.autograd.grad(kept(tokens), original, dy)
    (raw,) = torch.autograd.grad(once(tokens), other.weight, dy)
    torch.testing.assert_close(through, expected, rtol=1e-9, atol=1e-12)
    assert raw.mean(1).abs().max() > 1e-3 * raw.abs().max()
    torch.testing.assert_close(raw - raw.mean(1, keepdim=True), expected, rtol=1e-9, atol=1e-12)


def test_centering_keeps_a_pre_ln_network(tokens):
    model = _model()
    centered = copy.deepcopy(model)
    center_writers_(centered)
    torch.testing.assert_close(centered(tokens), model(tokens), rtol=0, atol=1e-12)
    norms = [block.norm for block in pre_norm_blocks(centered)] + [centered.norm]
    for x in norm_inputs(centered, norms, tokens):
        assert x.mean(-1).abs().max() < 1e-14 * x.abs().max()


def test_only_pre_ln_networks_are_converted():
    for placement in ("post_norm", "deep_norm", "none"):
        with pytest.raises(ValueError, match="model: "):
            to_pre_rms_norm(_model(placement))
    with pytest.raises(ValueError, match="has a RMSNorm where a LayerNorm"):
        to_pre_rms_norm(_model(norm="rms_norm"))
    strange = _model()
    strange.blocks[0].sublayer = torch.nn.Identity()
    with pytest.raises(ValueError, match="has a Identity in a block"):
        to_pre_rms_norm(strange)
    embedded = _model()
    embedded.input_norm = LayerNorm(32).double()
    with pytest.raises(ValueError, match="normalizes the embedding"):
        to_pre_rms_norm(embedded)


def test_which_conversions_train_alike():
    result = pre_rms_training.pre_rms_training.sweep(seed=[0], steps=8)
    assert result.before.max() < 1e-12
    same = {(o.centering, o.optimizer) for o in result.itertuples() if o.losses < 1e-10}
    assert same == {
        ("centering kept", "sgd"),
        ("centering kept", "adam"),
        ("centered after each step", "sgd"),
    }
    others = [o for o in result.itertuples() if (o.centering, o.optimizer) not in same]
    assert min(o.losses for o in others) > 1e-6


# The measurements.


SMALL = {"layers": 2, "width": 16, "hidden": 24}


def test_the_language_model_learns_with_either_norm():
    sweep = language_model.language_model.sweep(lr=[1e-2], seed=[0], steps=40, **SMALL)
    for o in sweep.itertuples():
        assert len(o.curve) == 2 and o.curve[1] < o.curve[0] - 0.3
        assert len(o.shares_before) == len(o.shares_after) == 5
    layer, rms = sweep.held_out
    assert layer != rms and abs(layer - rms) < 0.1


def test_both_norms_start_from_the_same_weights():
    models = [
        language_model.make_model(norm, seed=0, **SMALL) for norm in ("layer_norm", "rms_norm")
    ]
    kinds = [type(m.norm) for m in models]
    assert kinds == [LayerNorm, RMSNorm]
    assert [m.norm.eps for m in models] == [m.blocks[1].norm_2.eps for m in models] == [1e-5] * 2
    layer, rms = (dict(m.named_parameters()) for m in models)
    assert list(layer) == list(rms)
    for name, parameter in layer.items():
        torch.testing.assert_close(parameter, rms[name], rtol=0, atol=0)


def test_the_model_reads_no_token_that_follows():
    model = language_model.make_model("rms_norm", seed=0, **SMALL)
    tokens = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, 6:] = 1
    apart = (model(tokens) - model(other)).abs().amax((0, 2))
    assert (apart[:6] < 1e-6).all() and (apart[6:] > 1e-3).all()


def test_the_stream_of_the_language_model_is_centered_exactly():
    model = language_model.make_model("layer_norm", seed=0, **SMALL).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # no weight stays 1, where a mistake could hide
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.2 * noise)
    tokens = torch.randint(20, (3, 9), generator=generator)
    converted = language_model.replace_norms(model, "rms_norm")
    assert (converted(tokens) - model(tokens)).abs().max() > 0.01
    language_model.center_stream_(converted)
    torch.testing.assert_close(converted(tokens), model(tokens), rtol=0, atol=1e-12)
    assert max(language_model.mean_shares(converted, tokens)) < 1e-28


def test_share_of_the_mean_is_measured():
    model = language_model.make_model("rms_norm", seed=0, **SMALL)
    tokens = torch.randint(20, (3, 9), generator=torch.Generator().manual_seed(0))
    assert len(language_model.mean_shares(model, tokens)) == 5
    signs = torch.tensor([1.0, -1.0]).repeat(model.tokens.num_embeddings)
    with torch.no_grad():  # every token has a large mean, all tokens together have none
        model.tokens.weight.add_(10.0 * signs[: model.tokens.num_embeddings, None])
    assert language_model.mean_shares(model, tokens)[0] > 0.8


def test_conventions_in_half_precision():
    result = rms_conventions.rms_conventions.sweep(seed=[0], rows=8)
    verdicts = {
        name: [
            rms_conventions.verdict(result, name, dtype, scale)
            for dtype, scale in itertools.product(("float16", "bfloat16"), (1.0, 300.0, 1e-4))
        ]
        for name in rms_conventions.CONVENTIONS
    }
    assert verdicts == {
        "torch": ["right", "right", "rms 0.3"] * 2,
        "Llama": ["right", "right", "rms 0.1"] * 2,
        "Gemma": ["right", "right", "rms 0.1"] * 2,
        "authors, TensorFlow": ["right", "0", "not finite", "right", "right", "rms 0.7"],
        "authors, torch": ["right"] * 6,
        "x-transformers": ["right"] * 6,
    }


@pytest.mark.parametrize("name", rms_conventions.CONVENTIONS)
def test_conventions_are_as_declared(name):
    convention = rms_conventions.CONVENTIONS[name]
    declared = {
        "eps_placement": convention.eps_placement,
        "weight_cast": convention.weight_cast,
        "weight_offset": convention.weight_offset,
    }
    if convention.eps is not None:
        declared["eps"] = convention.eps
    report = check_layer(convention.apply, like="rms_norm", **declared)
    if convention.statistics == "float32":
        assert report.passed, str(report)
    if name == "authors, TensorFlow":
        assert [f.check for f in report.failures] == ["float16, large input"]


def test_operations_are_counted():
    layer, rms, fused, _ = norm_operations.norm_operations.sweep().itertuples()
    assert (layer.norm, rms.norm) == ("layer_norm, composed", "rms_norm, composed")
    assert layer.forward == ["mean", "sub", "pow", "mean", "add", "rsqrt", "mul", "mul", "add"]
    assert rms.forward == ["pow", "mean", "add", "rsqrt", "mul", "mul"]
    assert len(rms.backward) < len(layer.backward)
    assert rms.forward_traffic < 0.65 * layer.forward_traffic
    assert rms.backward_traffic < 0.8 * layer.backward_traffic
    assert fused.forward == ["native_layer_norm"]
    assert fused.backward == ["native_layer_norm_backward"]


def test_composed_norms_are_right():
    x, w, b = (torch.randn(4, 8, dtype=torch.float64) for _ in range(3))
    torch.testing.assert_close(
        norm_operations.compose_layer_norm(x, w[0], b[0]), layer_norm(x, (8,), w[0], b[0])
    )
    torch.testing.assert_close(
        norm_operations.compose_rms_norm(x, w[0], b[0]), rms_norm(x, (8,), w[0], 1e-5)
    )


def test_times_are_measured_and_not_judged(monkeypatch):
    pairs = ("composed", "the same layer twice")
    monkeypatch.setattr(norm_times, "PAIRS", {pair: norm_times.PAIRS[pair] for pair in pairs})
    monkeypatch.setattr(norm_times, "ROUNDS", 3)
    monkeypatch.setattr(norm_times, "BLOCK_MS", 0.1)
    found = norm_times.norm_times(8, 16, 0)
    assert [(o["pair"], o["direction"]) for o in found] == [
        (pair, direction) for direction in ("forward", "both") for pair in pairs
    ]
    for o in found:
        assert 0 < o["low"] <= o["ratio"] <= o["high"]
        assert o["layer_ms"] > 0 < o["rms_ms"]


@pytest.mark.parametrize(
    ("run", "settings", "says"),
    [
        (language_model.language_model, {"width": 30}, "width: got 30; expected a multiple of 4"),
        (partial_rms.partial_rms, {"p": [0.0]}, "p: got 0"),
        (partial_rms.partial_rms, {"steps": 5}, "steps: got 5"),
    ],
)
def test_bad_settings_are_named(run, settings, says):
    with pytest.raises(ValueError, match=says):
        run.sweep(**settings)


@pytest.mark.parametrize(
    ("run", "points"),
    [(partial_rms.partial_rms, 7), (stream_mean.stream_mean, 8), (norm_times.norm_times, 3)],
)
def test_the_grid_is_no_product(run, points):
    assert len(run._resolve({"seed": [0]})[0]) == points
