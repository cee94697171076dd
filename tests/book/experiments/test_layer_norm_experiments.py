"""What the small experiments of the layer norm chapter claim."""

import pytest
import torch

from normlab.book.experiments.layer_norm import (
    comparability,
    eps_placement,
    mixed_units,
    positions,
    restoring_the_input,
)
from normlab.book.experiments.layer_norm.routing import routing
from normlab.book.experiments.numerics.eps_forms import output_size


def test_eps_shrinks_small_inputs_as_predicted():
    for o in eps_placement.eps_placement.sweep().itertuples():
        predicted = output_size(o.scale, 1e-5, o.placement)
        assert o.output_rms == pytest.approx(predicted, rel=1e-9)
    assert output_size(1e-2, 1e-5, "inside") == pytest.approx(0.953463, rel=1e-6)
    assert output_size(1e-4, 1e-5, "outside") == pytest.approx(10 / 11)
    assert eps_placement.largest_gain("inside") == pytest.approx(1e-5**-0.5, rel=1e-3)
    assert eps_placement.largest_gain("outside") == pytest.approx(1e5, rel=1e-3)


def test_batch_norm_can_be_undone_and_layer_norm_cannot():
    result = restoring_the_input.restoring_the_input.sweep(source=["normal"], features=[8, 64])
    lost = result.groupby(["features", "norm"]).lost.agg(list)
    assert max(lost[8, "batch_norm"]) < 1e-20
    for features in (8, 64):
        expected = 1.5 / features  # 1/H for the mean, 1/(2H) for the scale of a row
        assert lost[features, "layer_norm"] == pytest.approx([expected] * 5, rel=0.15)
        assert lost[features, "rms_norm"] == pytest.approx([expected / 3] * 5, rel=0.25)


def test_share_lost_of_an_affine_copy_and_of_noise():
    x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert restoring_the_input.share_lost(x, 3 * x - 2) < 1e-20
    assert restoring_the_input.share_lost(x, noise) > 0.98


def test_each_norm_keeps_one_order_and_loses_the_other():
    shares = comparability.comparability.sweep().groupby("norm")
    lowest, highest = shares.min(), shares.max()
    assert lowest.across_samples["batch_norm"] == lowest.within_sample["layer_norm"] == 1.0
    assert highest.within_sample["batch_norm"] < 0.85
    assert highest.across_samples["layer_norm"] < 0.97


def test_kept_order_counts_pairs():
    x = torch.tensor([1.0, 2.0, 3.0])
    assert comparability.kept_order(x, torch.tensor([1.0, 3.0, 2.0])) == pytest.approx(2 / 3)
    assert comparability.kept_order(x, -x) == 0


def test_layer_norm_erases_color_beside_size_and_size_itself():
    found = mixed_units.mixed_units.sweep(seed=[0])
    seen = found.set_index(["arrangement", "question"]).accuracy
    for question in ("color", "size"):
        assert seen["no norm, standardized", question] > 0.9
        assert seen["batch norm, raw", question] > 0.9
        assert seen["layer norm, raw", question] < 0.6
        assert seen["linear, layer norm, standardized", question] > 0.9
    assert seen["no norm, raw", "color"] < 0.75
    assert seen["layer norm, standardized", "color"] > 0.9
    assert seen["layer norm, standardized", "size"] < 0.88
    assert seen["linear without bias, layer norm, standardized", "size"] > 0.9


def test_objects_carry_both_answers():
    x, answers = mixed_units.make_objects(2000, seed=0)
    assert torch.equal(answers["color"].bool(), x[:, 0] > x[:, 2])
    assert 0.45 < answers["size"].double().mean() < 0.55
    assert x[:, 3].median() > 500 * x[:, 0].median()


def test_tokens_that_a_replaced_token_changes():
    tokens = [len(s) for s in positions.SENTENCES]
    _, present = positions.embed(positions.SENTENCES, 16, seed=0)
    assert present.sum(0).tolist() == [
        sum(length > t for length in tokens) for t in range(max(tokens))
    ]
    assert dict(positions.positions.sweep()[["norm", "others"]].values) == {
        "batch norm per position": len(tokens) - 1,
        "batch norm pooled": sum(tokens) - 1,
        "layer norm per token": 0,
        "layer norm per sentence": tokens[positions.REPLACED[0]] - 1,
    }


def test_same_token_has_one_vector():
    x, present = positions.embed(("ab", "b"), 3, seed=0)
    assert torch.equal(x[0, 1], x[1, 0])
    assert present.tolist() == [[True, True], [True, False]]
    assert not x[1, 1].any()


def test_both_experts_learn_at_the_rate_that_is_asked_for():
    result = routing.sweep(norm=["none"], lr=[1e-3, 1e-2], seed=[0], rare=0.3, steps=60)
    slow, fast = result.itertuples()
    assert fast.rare_loss < 0.7 * slow.rare_loss
    assert fast.common_loss < 0.7 * slow.common_loss
