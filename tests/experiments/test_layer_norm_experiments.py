"""What the small experiments of the layer norm chapter claim."""

import pytest
import torch

from normlab.experiments.layer_norm import (
    comparability,
    eps_placement,
    mixed_units,
    positions,
    restoring_the_input,
    routing,
    usual_checks,
)
from normlab.experiments.numerics.eps_forms import output_size


def test_eps_shrinks_small_inputs_as_predicted():
    config = eps_placement.Config()
    for o in eps_placement.run(config).outcomes:
        predicted = output_size(o.scale, config.eps, o.placement)
        assert o.output_rms == pytest.approx(predicted, rel=1e-9)
    assert output_size(1e-2, 1e-5, "inside") == pytest.approx(0.953463, rel=1e-6)
    assert output_size(1e-4, 1e-5, "outside") == pytest.approx(10 / 11)
    assert eps_placement.largest_gain(config, "inside") == pytest.approx(1e-5**-0.5, rel=1e-3)
    assert eps_placement.largest_gain(config, "outside") == pytest.approx(1e5, rel=1e-3)


def test_batch_norm_can_be_undone_and_layer_norm_cannot():
    config = restoring_the_input.Config(sources=("normal",), features=(8, 64))
    result = restoring_the_input.run(config)
    assert max(result.values("lost", norm="batch_norm", features=8)) < 1e-20
    for features in config.features:
        expected = 1.5 / features  # 1/H for the mean, 1/(2H) for the scale of a row
        lost = result.values("lost", norm="layer_norm", features=features)
        assert lost == pytest.approx([expected] * 5, rel=0.15)
        lost = result.values("lost", norm="rms_norm", features=features)
        assert lost == pytest.approx([expected / 3] * 5, rel=0.25)


def test_share_lost_of_an_affine_copy_and_of_noise():
    x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert restoring_the_input.share_lost(x, 3 * x - 2) < 1e-20
    assert restoring_the_input.share_lost(x, noise) > 0.98


def test_each_norm_keeps_one_order_and_loses_the_other():
    result = comparability.run(comparability.Config())
    assert result.values("across_samples", norm="batch_norm") == [1.0] * 5
    assert result.values("within_sample", norm="layer_norm") == [1.0] * 5
    assert max(result.values("within_sample", norm="batch_norm")) < 0.85
    assert max(result.values("across_samples", norm="layer_norm")) < 0.97


def test_kept_order_counts_pairs():
    x = torch.tensor([1.0, 2.0, 3.0])
    assert comparability.kept_order(x, torch.tensor([1.0, 3.0, 2.0])) == pytest.approx(2 / 3)
    assert comparability.kept_order(x, -x) == 0


def test_layer_norm_erases_color_beside_size_and_size_itself():
    config = mixed_units.Config(seeds=(0,))
    outcomes = mixed_units.run(config).outcomes
    seen = {(o.arrangement, o.question): o.accuracy for o in outcomes}
    for question in config.questions:
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


def test_words_that_a_replaced_word_changes():
    config = positions.Config()
    words = [len(s.split()) for s in config.sentences]
    _, present = positions.embed(config.sentences, config.features, seed=config.seed)
    assert present.sum(0).tolist() == [
        sum(length > t for length in words) for t in range(max(words))
    ]
    others = {o.norm: o.others for o in positions.run(config).outcomes}
    assert others == {
        "batch norm per position": len(words) - 1,
        "batch norm pooled": sum(words) - 1,
        "layer norm per token": 0,
        "layer norm per sentence": words[config.sentence] - 1,
    }


def test_same_word_has_one_vector():
    x, present = positions.embed(("a b", "b"), 3, seed=0)
    assert torch.equal(x[0, 1], x[1, 0])
    assert present.tolist() == [[True, True], [True, False]]
    assert not x[1, 1].any()


def test_rarely_taken_branch_starves_batch_norm_only():
    config = routing.Config(norms=("batch_norm", "layer_norm"), lrs=(3e-3,), seeds=(0,))
    result = routing.run(config)
    batch, layer = result.outcomes
    assert batch.visits == layer.visits
    assert batch.refusals == dict(batch.visits)[1] > 80
    assert layer.refusals == 0
    assert batch.rare_loss > 5 * layer.rare_loss
    assert batch.common_loss < 0.05
    assert 0.8 < batch.std_ratio < 1.25


def test_both_experts_learn_at_the_rate_that_is_asked_for():
    config = routing.Config(norms=("none",), lrs=(1e-3, 1e-2), seeds=(0,), rare=0.3, steps=60)
    slow, fast = routing.run(config).outcomes
    assert fast.rare_loss < 0.7 * slow.rare_loss
    assert fast.common_loss < 0.7 * slow.common_loss


def test_usual_checks_miss_what_check_layer_finds():
    right, *wrong = usual_checks.run(usual_checks.Config()).values("noticed")
    assert right == ()
    counts = {check: sum(check in noticed for noticed in wrong) for check in usual_checks.CHECKS}
    assert counts["shape"] == 0
    assert counts["gradient of sum"] <= 4
    assert counts["values"] <= 5
    assert counts["random gradient"] <= 9
    assert counts["check_layer"] == len(wrong) == 11


def test_shares_by_seed_are_rows_of_ascending_features():
    config = restoring_the_input.Config(sources=("normal",), features=(16, 4), seeds=(0, 1))
    result = restoring_the_input.run(config)
    along = ("features", sorted(config.features))
    rows = result.table("lost", groups=("norm", ["layer_norm"]), along=along)["layer_norm"]
    assert [row[0] for row in rows] == result.values("lost", norm="layer_norm", features=4)
    assert [row[1] for row in rows] == result.values("lost", norm="layer_norm", features=16)
