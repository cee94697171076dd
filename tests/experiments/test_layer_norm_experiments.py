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


def test_eps_shrinks_small_inputs_as_predicted():
    result = eps_placement.run(eps_placement.Config())
    for measured, predicted in (
        (result.inside, result.predicted_inside),
        (result.outside, result.predicted_outside),
    ):
        for row in measured:
            assert row == pytest.approx(predicted, rel=1e-9)
    assert result.gain_inside == pytest.approx(1e-5**-0.5, rel=1e-3)
    assert result.gain_outside == pytest.approx(1e5, rel=1e-3)


def test_batch_norm_can_be_undone_and_layer_norm_cannot():
    config = restoring_the_input.Config(sources=("normal",), features=(8, 64))
    result = restoring_the_input.run(config)
    assert max(result.lost("normal", "batch_norm", 8)) < 1e-20
    for features in config.features:
        expected = 1.5 / features  # 1/H for the mean, 1/(2H) for the scale of a row
        assert result.lost("normal", "layer_norm", features) == pytest.approx(
            [expected] * 5, rel=0.15
        )
        assert result.lost("normal", "rms_norm", features) == pytest.approx(
            [expected / 3] * 5, rel=0.25
        )


def test_share_lost_of_an_affine_copy_and_of_noise():
    x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert restoring_the_input.share_lost(x, 3 * x - 2) < 1e-20
    assert restoring_the_input.share_lost(x, noise) > 0.98


def test_each_norm_keeps_one_order_and_loses_the_other():
    result = comparability.run(comparability.Config())
    assert result.shares("batch_norm", "across_samples") == [1.0] * 5
    assert result.shares("layer_norm", "within_sample") == [1.0] * 5
    assert max(result.shares("batch_norm", "within_sample")) < 0.85
    assert max(result.shares("layer_norm", "across_samples")) < 0.97


def test_kept_order_counts_pairs():
    x = torch.tensor([1.0, 2.0, 3.0])
    assert comparability.kept_order(x, torch.tensor([1.0, 3.0, 2.0])) == pytest.approx(2 / 3)
    assert comparability.kept_order(x, -x) == 0


def test_layer_norm_erases_color_beside_size_and_size_itself():
    config = mixed_units.Config(seeds=(0,))
    result = mixed_units.run(config)
    for question in config.questions:
        assert result.accuracies("no norm, standardized", question)[0] > 0.9
        assert result.accuracies("batch norm, raw", question)[0] > 0.9
        assert result.accuracies("layer norm, raw", question)[0] < 0.6
        assert result.accuracies("linear, layer norm, standardized", question)[0] > 0.9
    assert result.accuracies("no norm, raw", "color")[0] < 0.75
    assert result.accuracies("layer norm, standardized", "color")[0] > 0.9
    assert result.accuracies("layer norm, standardized", "size")[0] < 0.88


def test_objects_carry_both_answers():
    x, answers = mixed_units.make_objects(2000, seed=0)
    assert torch.equal(answers["color"].bool(), x[:, 0] > x[:, 2])
    assert 0.45 < answers["size"].double().mean() < 0.55
    assert x[:, 3].median() > 500 * x[:, 0].median()


def test_words_that_a_replaced_word_changes():
    config = positions.Config()
    result = positions.run(config)
    words = [len(s.split()) for s in config.sentences]
    assert result.values_per_position == tuple(
        sum(length > t for length in words) for t in range(max(words))
    )
    assert result.influence("layer norm per token").others == 0
    assert result.influence("batch norm per position").others == len(words) - 1
    assert result.influence("batch norm pooled").others == sum(words) - 1
    assert result.influence("layer norm per sentence").others == words[config.sentence] - 1


def test_same_word_has_one_vector():
    x, present = positions.embed(("a b", "b"), 3, seed=0)
    assert torch.equal(x[0, 1], x[1, 0])
    assert present.tolist() == [[True, True], [True, False]]
    assert not x[1, 1].any()


def test_rarely_taken_branch_starves_batch_norm_only():
    result = routing.run(routing.Config(norms=("batch_norm", "layer_norm"), seeds=(0,)))
    batch, layer = result.outcomes
    assert batch.visits == layer.visits
    assert batch.refusals == dict(batch.visits)[1] > 80
    assert layer.refusals == 0
    assert batch.rare_loss > 5 * layer.rare_loss
    assert batch.common_loss < 0.05
    assert 0.8 < batch.std_ratio < 1.25


def test_usual_checks_miss_what_check_layer_finds():
    result = usual_checks.run(usual_checks.Config())
    assert result.false_alarms == ()
    counts = {check: result.count(check) for check in usual_checks.CHECKS}
    assert counts["shape"] == 0
    assert counts["gradient of sum"] <= 4
    assert counts["values"] <= 5
    assert counts["random gradient"] <= 9
    assert counts["check_layer"] == len(result.noticed) == 11


def test_shares_by_seed_are_rows_of_ascending_features():
    config = restoring_the_input.Config(sources=("normal",), features=(16, 4), seeds=(0, 1))
    result = restoring_the_input.run(config)
    rows = result.by_seed("normal", "layer_norm")
    assert [row[0] for row in rows] == result.lost("normal", "layer_norm", 4)
    assert [row[1] for row in rows] == result.lost("normal", "layer_norm", 16)
