"""The batch norm experiments in a small size: what they claim, and that a seed fixes them."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch

from normlab.experiments.batch_norm import (
    batch_composition,
    batch_noise,
    batch_sizes,
    constant_statistics,
    convnet,
    depth_gradients,
    folding,
    initial_scale,
    learning_rates,
    noise_and_gap,
    norm_order,
    train_eval,
)
from normlab.experiments.results import Result
from normlab.layers import BatchNorm1d


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def numbers(value):
    """All leaves of a result, which has to hold plain numbers, strings and None only."""
    if isinstance(value, SimpleNamespace):
        return numbers(vars(value))
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in numbers(v)]
    if isinstance(value, list | tuple):
        return [leaf for v in value for leaf in numbers(v)]
    return [value]


SMALL = {
    "batch_sizes": (
        batch_sizes,
        batch_sizes.Config(
            norms=("batch_norm",), batch_sizes=(128,), lrs=(1e-3,), seeds=(0,), epochs=1
        ),
    ),
    "batch_composition": (
        batch_composition,
        batch_composition.Config(norms=("layer_norm",), seeds=(0,), steps=25),
    ),
    "batch_noise": (batch_noise, batch_noise.Config(seeds=(0,), draws=5, batch_sizes=(2, 4))),
    "noise_and_gap": (
        noise_and_gap,
        noise_and_gap.Config(ghost_sizes=(0, 64), lrs=(1e-2,), seeds=(0,), steps=3),
    ),
    "learning_rates": (
        learning_rates,
        learning_rates.Config(lrs=(0.1,), seeds=(0,), steps=3),
    ),
    "initial_scale": (
        initial_scale,
        initial_scale.Config(scales=(0.3,), lrs=(0.1,), seeds=(0,), steps=25),
    ),
    "norm_order": (norm_order, norm_order.Config(lrs=(0.1,), seeds=(0,), steps=25)),
    "train_eval": (train_eval, train_eval.Config(momenta=(0.1,), check_at=(1, 2), seeds=(0,))),
    "convnet": (
        convnet,
        convnet.Config(lrs=(0.1,), batches=((8, 25),), seeds=(0,), channels=(1, 4, 4)),
    ),
    "depth_gradients": (
        depth_gradients,
        depth_gradients.Config(depth=4, width=16, batch_size=8, seeds=(0,)),
    ),
    "constant_statistics": (constant_statistics, constant_statistics.Config(steps=5)),
    "folding": (folding, folding.Config(steps=3)),
}


@pytest.mark.parametrize("name", SMALL)
def test_results_are_plain_numbers_and_repeat_exactly(name):
    experiment, config = SMALL[name]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seeds = ()
    first, second = experiment.run(config), experiment.run(config)
    assert first == second
    leaves = numbers(first if isinstance(first, dict) else dataclasses.asdict(first))
    assert leaves
    assert {type(leaf) for leaf in leaves} <= {int, float, str, type(None)}


def test_small_batches_ruin_training_but_not_evaluation():
    config = batch_sizes.Config(seeds=(0,), epochs=2)
    bn = batch_sizes.run_one(config, "batch_norm", 4, 1e-3, 0)
    ln = batch_sizes.run_one(config, "layer_norm", 4, 1e-3, 0)
    assert bn["train_loss"] > 3 * ln["train_loss"]
    assert bn["batch_accuracy"] < bn["eval_accuracy"] - 0.03
    assert bn["eval_accuracy"] > 0.9
    assert ln["batch_accuracy"] == pytest.approx(ln["eval_accuracy"], abs=1e-6)


def test_a_run_that_diverges_has_no_training_loss():
    lost = batch_sizes.run_one(batch_sizes.Config(epochs=1), "none", 128, 1e30, 0)
    assert lost["train_loss"] is None
    assert lost["eval_loss"] is None
    assert lost["eval_accuracy"] < 0.3


def test_one_class_per_batch_defeats_batch_norm_only():
    config = batch_composition.Config(steps=120)
    bn = batch_composition.run_one(config, "batch_norm", 1, 0)
    ln = batch_composition.run_one(config, "layer_norm", 1, 0)
    assert bn["eval_accuracy"] < 0.4
    assert ln["eval_accuracy"] > 0.7


def test_noise_falls_with_the_root_of_the_batch_size():
    result = batch_noise.run(batch_noise.Config(seeds=(0, 1, 2), batch_sizes=(4, 64)))
    four, many = (result.median("noise", norm="batch_norm", batch_size=b) for b in (4, 64))
    assert 3.2 < four / many < 5.0  # root of 16
    assert result.median("noise", norm="layer_norm", batch_size=4) < 1e-5
    with pytest.raises(ValueError, match="norms: got 'weight_norm'"):
        batch_noise.run(batch_noise.Config(norms=("weight_norm",)))


def test_batches_of_one_class_keep_batch_norm_from_learning():
    config = batch_composition.Config(steps=60)
    one = batch_composition.run_one(config, "batch_norm", 1, 0)
    assert max(one["eval_accuracy"], one["batch_accuracy"], one["class_accuracy"]) < 0.4
    assert one["train_loss"] > 1.9  # a blind guess has 2.3
    layer = batch_composition.run_one(config, "layer_norm", 1, 0)
    assert layer["class_accuracy"] == pytest.approx(layer["eval_accuracy"], abs=1e-6)


def test_small_initial_weights_stop_a_network_without_norm():
    config = initial_scale.Config(steps=60)
    none, bn = (initial_scale.run_one(config, n, 0.1, 0.1, seed=0) for n in ("none", "batch_norm"))
    assert none["eval_accuracy"] < 0.2 < 0.8 < bn["eval_accuracy"]
    right = initial_scale.run_one(config, "none", 1.0, 0.1, seed=0)
    assert right["eval_accuracy"] > 0.6


def test_the_norm_stands_where_it_is_said_to():
    config = norm_order.Config()
    kinds = {
        order: [type(m).__name__ for m in norm_order.make_network(config, order, seed=0)]
        for order in config.orders
    }
    first = {order: names[1:3] for order, names in kinds.items()}
    assert first["before the ReLU"] == ["BatchNorm1d", "ReLU"]
    assert first["after the ReLU"] == ["ReLU", "BatchNorm1d"]
    assert "BatchNorm1d" not in kinds["no norm"]
    assert kinds["after the ReLU"][4:6] == ["ReLU", "BatchNorm1d"]
    weights = [norm_order.make_network(config, o, seed=0)[0].weight for o in config.orders]
    assert torch.equal(weights[1], weights[2])


def test_ghost_batch_norm_normalizes_each_part_by_itself():
    layer = noise_and_gap.GhostBatchNorm(BatchNorm1d(3), ghost_size=4)
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).double()
    layer.double()
    y = layer(x)
    for part in y.split(4):
        torch.testing.assert_close(part.mean(0), torch.zeros(3).double(), atol=1e-7, rtol=0)
    assert layer.norm.num_batches_tracked == 2
    whole = BatchNorm1d(3).double()
    assert not torch.allclose(y, whole(x), atol=1e-2)
    layer.eval()
    torch.testing.assert_close(layer(x), layer.norm(x))


def test_only_batch_norm_trains_at_a_large_learning_rate():
    config = learning_rates.Config(norms=("none", "batch_norm"), lrs=(3.0,), seeds=(0,), steps=80)
    result = learning_rates.run(config)
    assert result.values("eval_accuracy", norm="batch_norm")[0] > 0.8
    assert result.values("eval_accuracy", norm="none")[0] < 0.3
    assert learning_rates.largest_lr(result, "batch_norm", above=0.8) == 3.0
    assert learning_rates.largest_lr(result, "none", above=0.8) == 0.0


def test_slow_running_statistics_lag_behind():
    lag = train_eval.run(train_eval.Config(check_at=(40,), seeds=(0,)))
    (fast,), (slow,) = (lag.values("eval_loss", momentum=m, step=40) for m in (0.1, 0.01))
    batch = [lag.values("batch_loss", momentum=m, step=40) for m in (0.1, 0.01)]
    assert batch[0] == batch[1]  # momentum does not touch the training
    assert slow > fast > batch[0][0]


def test_gradients_explode_through_batch_norm():
    result = depth_gradients.run(depth_gradients.Config(depth=12, width=256, seeds=(0,)))
    growth = {o.norm: o.growth for o in result.outcomes}
    assert growth["batch_norm"] == pytest.approx(depth_gradients.predicted_growth(), rel=0.06)
    assert growth["none"] == pytest.approx(1, rel=0.12)
    assert growth["layer_norm"] == pytest.approx(1, rel=0.12)
    assert result.of(norm="none")[0].squared_norms[-1] == 1.0


def test_a_constant_mean_lets_the_bias_run_away():
    config = constant_statistics.Config(steps=100, lr=0.5, target_mean=0.25)
    cut = constant_statistics.run(config)
    assert cut["biases"][-1] == pytest.approx(100 * 0.5 * 0.25)
    assert cut["losses"][-1] == pytest.approx(0.25**2 / 2)
    assert max(cut["losses"]) - min(cut["losses"]) < 1e-12
    whole = constant_statistics.run(dataclasses.replace(config, through_statistics=True))
    assert abs(whole["biases"][-1]) < 1e-12


def test_convnet_shares_and_summaries():
    config = convnet.Config(channels=(1, 8, 8, 16))
    bn, ln = (convnet.differing_share(config, g, 0) for g in ("batch_norm", "layer_norm"))
    assert 0 < ln < 0.6 * bn < 1

    def outcome(lr, seed, steps):
        loss = None if steps is None else 1 / steps
        return SimpleNamespace(
            group="none", batch_size=4, lr=lr, seed=seed, train_loss=loss, steps_to_solve=steps
        )

    steps = {0.1: (30, 40, 50), 1.0: (10, 20, None), 3.0: (5, None, None)}
    outcomes = [outcome(lr, seed, n) for lr, row in steps.items() for seed, n in enumerate(row)]
    result = Result(tuple(outcomes))
    assert result.best("steps_to_solve", "lr", group="none", batch_size=4) == (1.0, 20)
    assert result.median("train_loss", missing=math.inf, lr=0.1) == 1 / 40
    assert result.median("train_loss", missing=math.inf, lr=3.0) == math.inf


def test_ghosts_of_the_whole_batch_are_batch_norm():
    config = convnet.Config(channels=(1, 4, 4))
    groups = ("batch_norm", "ghosts of 8", "ghosts of 2")
    plain, whole, parts = (convnet.run_one(config, g, 8, 25, 0.1, seed=0) for g in groups)
    assert plain == whole != parts


def test_folding_is_exact():
    found = folding.run_one(folding.Config(steps=10), seed=0)
    assert found["modules_after"] == found["modules_before"] - 2
    assert found["agreements"] == found["test_size"]
    assert found["difference64"] < 1e-13
    assert found["difference32"] < 1e-5


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_folding_without_bias_or_parameters(bias, affine):
    generator = torch.Generator().manual_seed(1)
    linear = torch.nn.Linear(5, 3, bias=bias).double()
    norm = BatchNorm1d(3, affine=affine).double()
    norm(torch.randn(20, 3, generator=generator).double() * 2 + 1)
    if affine:
        with torch.no_grad():
            norm.weight.copy_(torch.tensor([0.5, -1.0, 2.0]))
            norm.bias.copy_(torch.tensor([1.0, 0.0, -3.0]))
    norm.eval()
    x = torch.randn(7, 5, generator=generator).double()
    torch.testing.assert_close(folding.fold_batch_norm(linear, norm)(x), norm(linear(x)))


def test_folding_needs_running_statistics():
    with pytest.raises(ValueError, match="track_running_stats=False"):
        folding.fold_batch_norm(torch.nn.Linear(2, 2), BatchNorm1d(2, track_running_stats=False))
