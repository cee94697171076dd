"""The recurrent cells, and what the experiments with them claim."""

import pytest
import torch

from normlab.book.experiments.layer_norm import hidden_scale, longer_sequences, recurrent_digits
from normlab.book.experiments.layer_norm.recurrent import (
    Gru,
    MissingStatisticsError,
    PerStepBatchNorm,
)


def test_one_seed_gives_every_norm_the_same_weights():
    plain, normed = (Gru(8, 6, 10, n, seed=3, steps=8) for n in ("none", "batch_norm"))
    for name in ("x_gates", "h_gates", "x_candidate", "h_candidate", "output"):
        a, b = plain.get_submodule(name), normed.get_submodule(name)
        torch.testing.assert_close(a.weight, b.weight, rtol=0, atol=0)


def test_plain_cell_is_torch_gru():
    """With the names of torch's gates: its z is 1 - ours, its r multiplies U h alike."""
    ours = Gru(3, 4, 2, seed=0, steps=5).double()
    theirs = torch.nn.GRU(3, 4, batch_first=True).double()
    with torch.no_grad():
        z_x, r_x = ours.x_gates.weight.chunk(2)
        z_h, r_h = ours.h_gates.weight.chunk(2)
        z_b, r_b = ours.x_gates.bias.chunk(2)
        theirs.weight_ih_l0.copy_(torch.cat([r_x, -z_x, ours.x_candidate.weight]))
        theirs.weight_hh_l0.copy_(torch.cat([r_h, -z_h, ours.h_candidate.weight]))
        theirs.bias_ih_l0.copy_(torch.cat([r_b, -z_b, ours.x_candidate.bias]))
        theirs.bias_hh_l0.zero_()
    x = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    _, last = theirs(x)
    torch.testing.assert_close(ours(x), ours.output(last[0]))


def test_batch_norm_keeps_statistics_for_each_step():
    norm = PerStepBatchNorm(2, 3)
    x = torch.tensor([[0.0, 1.0], [2.0, 5.0]])
    norm(x, 1)
    means = torch.stack([n.running_mean for n in norm.norms])
    torch.testing.assert_close(means, torch.tensor([[0.0, 0.0], [0.1, 0.3], [0.0, 0.0]]))


def test_batch_norm_has_no_statistics_beyond_the_last_step():
    x = torch.zeros(2, 9, 8)
    with pytest.raises(MissingStatisticsError, match="step: got 8; statistics exist for steps 0"):
        Gru(8, 6, 10, "batch_norm", seed=0, steps=8).eval()(x)
    reusing = Gru(8, 6, 10, "batch_norm", seed=0, steps=8, beyond="reuse").eval()
    assert reusing(x).shape == (2, 10)
    for norm in ("none", "layer_norm"):
        assert Gru(8, 6, 10, norm, seed=0, steps=8)(x).shape == (2, 10)


def test_layer_norm_outputs_do_not_depend_on_the_batch():
    x = torch.randn(5, 8, 8, generator=torch.Generator().manual_seed(0))
    normed = Gru(8, 6, 10, "layer_norm", seed=0, steps=8)
    torch.testing.assert_close(normed(x)[:1], normed(x[:1]))
    batched = Gru(8, 6, 10, "batch_norm", seed=0, steps=8)
    assert (batched(x)[:2] - batched(x[:2])).abs().max() > 0.05


def test_unknown_norm():
    with pytest.raises(ValueError, match="norm: got 'rms_norm'"):
        Gru(2, 3, 1, "rms_norm", seed=0, steps=2)


def test_hidden_state_vanishes_explodes_or_keeps_its_size():
    lengths = hidden_scale.hidden_scale.sweep().groupby(["norm", "gain"]).lengths.agg(list)
    assert max(run[49] for run in lengths["none", 0.5]) < 1e-6
    assert min(run[49] for run in lengths["none", 1.5]) > 1e4
    for run in lengths["layer_norm", 0.5] + lengths["layer_norm", 1.5]:
        assert all(4.5 < length < 7 for length in run[4:])


def test_without_a_norm_there_is_one_gain():
    points, _ = recurrent_digits.recurrent_digits._resolve({"batch_size": [4], "seed": [0]})
    assert [(p["norm"], p["gain"]) for p in points] == [
        ("none", 1.0),
        ("layer_norm", 1.0),
        ("layer_norm", 0.1),
        ("batch_norm", 1.0),
        ("batch_norm", 0.1),
    ]


def test_adding_problem_marks_one_number_in_each_half():
    x, y = longer_sequences.adding_problem(50, 7, generator=torch.Generator().manual_seed(0))
    numbers, marks = x.unbind(-1)
    assert (marks[:, :3].sum(1) == 1).all()
    assert (marks[:, 3:].sum(1) == 1).all()
    torch.testing.assert_close((numbers * marks).sum(1, keepdim=True), y)


def test_guessing_error_of_the_adding_problem():
    x, y = longer_sequences.adding_problem(20000, 4, generator=torch.Generator().manual_seed(0))
    assert x.shape == (20000, 4, 2)
    assert float((y - 1).square().mean()) == pytest.approx(longer_sequences.GUESS, rel=0.05)


def test_a_longer_sequence_is_tested():
    short = {"length": 6, "test_lengths": (6, 9), "hidden": 4, "steps": 60}
    errors = longer_sequences.longer_sequences("batch_norm", 5e-3, 0, **short)["test_errors"]
    assert len(errors) == 2
    assert all(0 < e < 10 for e in errors)


def test_layer_norm_trains_the_gru_faster():
    norms = ["none", "layer_norm"]
    result = recurrent_digits.recurrent_digits.sweep(
        norm=norms, gain=[1.0], batch_size=[32], seed=[0]
    )
    (plain,), (layer,) = (recurrent_digits.final_losses(result, n, 32) for n in norms)
    assert layer < 0.75 * plain
    assert result.curve.map(len).tolist() == [20, 20]


def test_a_small_first_gain_slows_layer_norm():
    result = recurrent_digits.recurrent_digits.sweep(norm=["layer_norm"], batch_size=[32], seed=[0])
    ((small,), (one,)) = (
        recurrent_digits.final_losses(result, "layer_norm", 32, gain) for gain in (0.1, 1.0)
    )
    assert small > 1.2 * one


def test_a_rate_near_zero_learns_no_sums():
    short = {"length": 4, "test_lengths": (4,), "steps": 110}
    still, learned = (
        longer_sequences.longer_sequences("none", lr, 0, **short)["early_loss"]
        for lr in (1e-6, 3e-2)
    )
    assert learned < 0.1 * still
