"""What the experiments of the chapter on numerics claim, with margins; and that they can fail."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from normlab.book.experiments import tables
from normlab.book.experiments.numerics import (
    eps_forms,
    half_statistics,
    library_conventions,
    moved_model,
    norm_folding,
    padding,
    variance_cancellation,
)
from normlab.layers import BatchNorm2d, LayerNorm

CONVENTIONS = Path(__file__).resolve().parents[3] / "book" / "_data" / "conventions.json"


# Cancellation.


def worst(table, measure, method, mean):
    return tables.where(table, method=method, mean=mean)[measure].fillna(np.inf).max()


@pytest.fixture(scope="module")
def cancellation():
    return variance_cancellation.variance_cancellation.sweep()


def test_one_pass_loses_the_variance(cancellation):
    for mean, low, high in ((100.0, 1e-4, 1e-1), (1e3, 1e-2, 10.0), (1e4, 1.0, 1e3)):
        assert low < worst(cancellation, "variance_error", "one pass", mean) < high
    assert tables.where(cancellation, method="one pass", mean=1e4).negative.sum() > 3


def test_two_passes_keep_the_variance_and_shift_the_output(cancellation):
    assert worst(cancellation, "variance_error", "two passes", 1e4) < 1e-4
    assert 1e-4 < worst(cancellation, "output_error", "two passes", 1e4) < 1e-1


def test_only_the_correction_is_flat(cancellation):
    for mean in cancellation["mean"].unique():
        assert worst(cancellation, "output_error", "corrected", mean) < 3e-6
        assert worst(cancellation, "variance_error", "corrected", mean) < 2e-6
    for method in ("one pass", "Welford", "two passes"):
        assert worst(cancellation, "output_error", method, 1e5) > 1e-3


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="measured in torch 2.13")
def test_torch_is_off_at_a_large_mean(cancellation):
    assert 1e-3 < worst(cancellation, "output_error", "torch", 1e5) < 1


def test_constant_rows():
    values = (3.3, 100.1, 1e4 + 0.1, 1e5 + 0.1)
    for method in ("Welford", "torch", "corrected"):
        assert all(variance_cancellation.constant_row(method, v) == 0 for v in values)
    assert variance_cancellation.constant_row("two passes", 1e5 + 0.1) > 0.5


def test_rounded_mean_identity():
    """mean((x - m)²) = var + (mean - m)², so a wrong m must be seen."""
    x = np.random.default_rng(0).standard_normal(50)
    for shift in (0.0, 0.3, -2.0):
        around = ((x - (x.mean() + shift)) ** 2).mean()
        assert around == pytest.approx(x.var() + shift**2, rel=1e-12)


# The places of eps.


def test_half_sizes_and_gains():
    result = eps_forms.eps_forms.sweep()
    for outcome in result.itertuples():
        assert outcome.halved == pytest.approx(0.5, rel=1e-9)
        for sizes in outcome.sizes:
            predicted = [eps_forms.output_size(s, 1e-5, outcome.place) for s in eps_forms.STDS]
            assert sizes == pytest.approx(predicted, rel=1e-9)
    assert result.gain.tolist() == pytest.approx([1e-5**-0.5, 1e5, 1e5], rel=1e-3)


def test_half_size_differs_between_places():
    assert len({eps_forms.half_size(1e-5, place) for place in ("inside", "outside", "clamp")}) == 3


@pytest.mark.parametrize("call", [eps_forms.half_size, lambda e, p: eps_forms.output_size(1, e, p)])
def test_unknown_places_are_refused(call):
    with pytest.raises(ValueError, match="place"):
        call(1e-5, "under")


# Half precision.


def test_half_statistics():
    result = half_statistics.half_statistics.sweep().fillna(np.inf)

    def error(**point):
        return tables.where(result, **point).error.item()

    for dtype, unit in (("float16", 2**-10), ("bfloat16", 2**-7)):
        for mean in (0.0, 10.0, 100.0):
            assert error(method="float32 statistics", dtype=dtype, mean=mean) < 3 * unit
        assert error(method="two passes in half", dtype=dtype, mean=100.0) > 4 * unit
        assert error(method="one pass in half", dtype=dtype, mean=100.0) > 1


def test_unknown_dtype_is_refused():
    with pytest.raises(ValueError, match="dtype"):
        half_statistics.half_statistics.sweep(dtype=["float8"])


# Padding.


@pytest.fixture(scope="module")
def padded():
    return padding.padding.sweep(seed=[0, 1])


def rows(padded, norm):
    return tables.curves(padded, "moved", groups="norm", along="extra")[norm]


@pytest.mark.parametrize("norm", ["layer norm, token", "RMS norm, token", "masked batch norm"])
def test_some_norms_do_not_see_padding(padded, norm):
    assert max(max(row) for row in rows(padded, norm)) < 1e-10


@pytest.mark.parametrize(
    "norm", ["batch norm", "group norm", "instance norm", "layer norm, sentence"]
)
def test_the_others_do_and_more_with_more_padding(padded, norm):
    for row in rows(padded, norm):
        assert row[0] > 0.3
        assert row == sorted(row)


@pytest.mark.parametrize("mean", [0.0, 2.0])
def test_padded_moments_follow_the_formula(mean):
    x, mask = padding.make_batch(extra=20, seed=0, mean=mean)
    real = x.movedim(1, -1)[mask]
    share = mask.double().mean().item()
    for c in range(x.shape[1]):
        moments = padding.predict_padded_moments(
            share, real[:, c].mean().item(), real[:, c].var(correction=0).item()
        )
        got = x[:, c].mean().item(), x[:, c].var(correction=0).item()
        assert moments == pytest.approx(got, rel=1e-10)


def test_batch_norm_moves_as_predicted(padded):
    """The values are drawn, so their variance is 1 only roughly; without padding nothing moves."""
    predicted = padding.predict_moved((0, 4, 20, 100))
    assert np.median(rows(padded, "batch norm"), axis=0) == pytest.approx(predicted, rel=0.15)
    assert padding.predict_moved((0,), lengths=(5, 5)) == [0.0]


# Folding.


def test_what_can_be_folded_and_what_cannot():
    result = norm_folding.norm_folding()
    assert max(result["after_conv"], result["before_conv_inside"], result["pre_norm"]) < 1e-12
    assert min(result["before_conv_border"], result["post_norm"]) > 1e-2


@pytest.mark.parametrize(
    "options", [{}, {"groups": 2}, {"stride": 2, "padding": 1}, {"bias": False, "dilation": 2}]
)
def test_any_convolution_can_be_folded(options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        conv = torch.nn.Conv2d(4, 6, 3, **options).double()
        norm = BatchNorm2d(6).double()
        norm(torch.randn(8, 6, 5, 5).double() * 3 + 1)  # running statistics of its own
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
        x = torch.randn(2, 4, 9, 9).double()
    norm.eval()
    before = {k: v.clone() for k, v in conv.state_dict().items()}
    folded = norm_folding.fold_into_conv(conv, norm)
    torch.testing.assert_close(folded(x), norm(conv(x)), rtol=1e-10, atol=1e-10)
    assert all(torch.equal(conv.state_dict()[k], v) for k, v in before.items())


def test_a_norm_without_bias_is_folded_too():
    norm = LayerNorm(5, bias=False).double()
    torch.nn.init.uniform_(norm.weight, 1, 2)
    linear = torch.nn.Linear(5, 3, bias=False).double()
    x = torch.arange(10.0).double().view(2, 5).sin()
    bare = LayerNorm(5, elementwise_affine=False)
    folded = norm_folding.fold_into_linear(norm, linear)
    torch.testing.assert_close(folded(bare(x)), linear(norm(x)), rtol=1e-12, atol=1e-12)


def test_folding_refuses_what_it_cannot():
    conv = torch.nn.Conv2d(4, 4, 3, groups=2)
    with pytest.raises(ValueError, match="groups"):
        norm_folding.fold_into_next_conv(BatchNorm2d(4), conv)
    with pytest.raises(ValueError, match="track_running_stats"):
        norm_folding.fold_into_conv(conv, BatchNorm2d(4, track_running_stats=False))
    with pytest.raises(ValueError, match="placement"):
        norm_folding.fold_norms(None, "deep_norm")


# The table of libraries.


def test_the_table_is_complete():
    conventions = library_conventions.read_conventions(CONVENTIONS)
    assert len({c.library for c in conventions}) >= 10
    for family in library_conventions.FAMILIES:
        assert len({c.library for c in conventions if c.family == family}) >= 6
    versions = {(c.library, c.version) for c in conventions}
    assert len(versions) == len({library for library, _ in versions})


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="read in torch 2.13")
def test_torchs_rows_are_those_of_the_installed_torch():
    rows = {
        c.layer: c
        for c in library_conventions.read_conventions(CONVENTIONS)
        if c.library == "torch"
    }
    assert rows["LayerNorm"].eps == torch.nn.LayerNorm(1).eps
    assert rows["BatchNorm2d"].eps == torch.nn.BatchNorm2d(1).eps
    assert rows["BatchNorm2d"].momentum == torch.nn.BatchNorm2d(1).momentum
    assert rows["RMSNorm"].eps is torch.nn.RMSNorm(1).eps is None
    assert all(c.version == torch.__version__.partition("+")[0] for c in rows.values())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"eps_place": "under"}, "eps_place"),
        ({"variance": "guessed"}, "variance"),
        ({"statistics": ""}, "statistics"),
        ({"version": ""}, "version"),
        ({"eps": 0.0}, "eps"),
        ({"momentum_of": "new"}, "momentum_of"),
        ({"family": "batch_norm"}, "momentum_of"),
        ({"surplus": 1}, "surplus"),
        ({"note": ...}, "note"),
    ],
)
def test_an_incomplete_table_is_refused(change, word, tmp_path):
    record = json.loads(CONVENTIONS.read_text())["conventions"][0] | change
    record = {k: v for k, v in record.items() if v is not ...}
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"conventions": [record]}))
    with pytest.raises(ValueError, match=word):
        library_conventions.read_conventions(path)


def test_a_layer_stands_there_once(tmp_path):
    record = json.loads(CONVENTIONS.read_text())["conventions"][0]
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"conventions": [record, record]}))
    with pytest.raises(ValueError, match="more than once"):
        library_conventions.read_conventions(path)


def test_momentum_is_translated():
    rows = {
        (c.library, c.layer): c.torch_momentum
        for c in library_conventions.read_conventions(CONVENTIONS)
    }
    assert rows["keras", "BatchNormalization"] == 0.01
    assert rows["torch", "BatchNorm2d"] == rows["onnx", "BatchNormalization"] == 0.1
    assert rows["torch", "LayerNorm"] is None


def test_a_line_for_torch_has_the_conventions():
    lines = {
        (c.library, c.layer): c.in_torch for c in library_conventions.read_conventions(CONVENTIONS)
    }
    keras = eval(lines["keras", "BatchNormalization"], {"nn": nn, "C": 4})
    assert (keras.eps, keras.momentum) == (1e-3, 0.01)
    flax = eval(lines["flax", "LayerNorm"], {"nn": nn, "D": 4})
    assert isinstance(flax, nn.LayerNorm) and flax.eps == 1e-6
    assert lines["dm-haiku", "BatchNorm"].endswith("momentum=1 - decay_rate)")
    assert lines["transformers", "Gemma"] == "nn.RMSNorm(D, eps=1e-06), weight: 1 + theirs"
    assert lines["torch", "RMSNorm"] == "nn.RMSNorm(D)"
    assert lines["x-transformers", "RMSNorm"] == ""  # a floor under the length: torch has none


# A model that moves.


@pytest.fixture(scope="module")
def moved():
    return moved_model.moved_model.sweep(seed=range(3))


def test_a_state_dict_does_not_carry_eps(moved):
    assert moved["keys"].tolist() == [0, 0, 0]
    assert moved.changed.min() > 0.05
    assert moved.mended.max() == 0


def test_the_direction_of_momentum_moves_the_buffer(moved):
    assert moved.buffer_ratio.min() > 3


def test_a_model_with_the_same_conventions_does_not_change():
    found = moved_model.moved_model(0, eps=1e-5, momentum=0.1, epochs=2)
    assert found["changed"] == 0 and found["buffer_ratio"] == pytest.approx(1)
