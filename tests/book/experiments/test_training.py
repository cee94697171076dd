"""Data, networks and the loop that all experiments share."""

import copy
import itertools
import math

import pytest
import torch

from normlab.book.experiments.data.batches import class_batches, shuffled_batches
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import (
    make_convnet,
    make_feature_norm,
    make_image_norm,
    make_mlp,
)
from normlab.book.experiments.rounding import power_above
from normlab.book.experiments.training import evaluate, fit, redraw_signs_
from normlab.layers import BatchNorm1d


def test_digits_split():
    split = load_digits_split(3)
    assert split.x_train.shape == (1297, 64)
    assert split.x_test.shape == (500, 64)
    assert split.x_train.dtype == torch.float32
    assert split.y_train.dtype == torch.long
    assert split.x_train.min() == 0
    assert split.x_train.max() == 1
    rows = torch.cat([split.x_train, split.x_test])
    other = load_digits_split(4)
    others = torch.cat([other.x_train, other.x_test])
    assert not torch.equal(split.x_test, other.x_test)
    # another shuffle of the same digits: no digit is lost, none is in both parts
    assert torch.equal(rows.sort(0).values, others.sort(0).values)
    assert split.as_images().x_test.shape == (500, 1, 8, 8)


def test_a_split_belongs_to_its_caller():
    load_digits_split(0).x_train.zero_()
    assert load_digits_split(0).x_train.max() == 1


def test_shuffled_batches_visit_each_sample_once_per_epoch():
    batches = shuffled_batches(10, 3, seed=0)
    first = torch.cat(list(itertools.islice(batches, 3)))
    second = torch.cat(list(itertools.islice(batches, 3)))
    assert len(first.unique()) == 9
    assert not torch.equal(first, second)
    again = torch.cat(list(itertools.islice(shuffled_batches(10, 3, seed=0), 3)))
    assert torch.equal(first, again)
    with pytest.raises(ValueError, match="batch_size: got 11 for 10 samples"):
        next(shuffled_batches(10, 11, seed=0))


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_class_batches_hold_so_many_classes(classes):
    labels = load_digits_split(0).y_train
    batches = class_batches(labels, 20, classes_per_batch=classes, seed=1)
    seen = set()
    for batch in itertools.islice(batches, 40):
        found, counts = labels[batch].unique(return_counts=True)
        assert len(found) == classes
        assert set(counts.tolist()) == {20 // classes}
        seen |= set(found.tolist())
    assert seen == set(range(10))


def test_class_batches_refuse_what_does_not_divide():
    with pytest.raises(ValueError, match="classes_per_batch: got 3"):
        next(class_batches(torch.arange(10), 20, classes_per_batch=3, seed=0))


def small_run(norm="batch_norm", lr=0.1, steps=5):
    data = load_digits_split(0)
    model = make_mlp((64, 16, 10), norm, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = fit(model, optimizer, data.batches(32, seed=0), steps)
    return model, data, losses


def test_training_learns_and_repeats():
    _, _, losses = small_run(steps=60)
    assert len(losses) == 60
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert losses == small_run(steps=60)[2]


def test_training_is_in_train_mode_on_batches_of_the_seed():
    _, data, losses = small_run(steps=3)
    for seed in (0, 1):
        model, seen = make_mlp((64, 16, 10), "batch_norm", seed=0).eval(), []
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        found = fit(model, sgd, data.batches(32, seed), 3, after_step=seen.append)
        assert seen == [1, 2, 3]
        assert model.training
        assert (found == losses) == (seed == 0)


def test_a_diverged_run_ends_at_its_first_infinite_loss():
    losses = small_run("none", lr=1e30, steps=20)[2]
    assert len(losses) < 20
    assert not math.isfinite(losses[-1])
    assert all(map(math.isfinite, losses[:-1]))


def test_training_goes_down_the_gradient_of_each_batch():
    model, steps = torch.nn.Linear(1, 1, bias=False), []
    with torch.no_grad():
        model.weight.fill_(3.0)
    losses = fit(
        model,
        torch.optim.SGD(model.parameters(), lr=0.25),
        iter([1.0, 0.5, math.nan, 1.0]),
        4,
        loss_of=lambda model, factor: factor * model.weight.square().sum(),
        after_step=lambda step: steps.append((step, model.weight.item())),
    )
    assert losses[:2] == [9.0, 0.5 * 1.5**2]
    assert len(losses) == 3
    assert math.isnan(losses[2])
    assert steps == [(1, 1.5), (2, 1.125)]


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_evaluation_leaves_the_model_alone(mode):
    model, data, _ = small_run()
    before = copy.deepcopy(model.state_dict())
    evaluate(model, data.x_test, data.y_test, mode=mode, batch_size=50)
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_two_modes_use_different_statistics():
    model, data, _ = small_run(steps=3)
    running = evaluate(model, data.x_test, data.y_test)
    batch = evaluate(model, data.x_test, data.y_test, mode="train")
    assert abs(running.loss - batch.loss) > 1e-3
    pairs = evaluate(model, data.x_test, data.y_test, mode="train", batch_size=2)
    assert pairs.loss > batch.loss
    with pytest.raises(ValueError, match="mode: got 'test'"):
        evaluate(model, data.x_test, data.y_test, mode="test")


def test_evaluation_in_parts_leaves_out_the_rest():
    model, data, _ = small_run("none")
    whole = evaluate(model, data.x_test[:480], data.y_test[:480])
    parts = evaluate(model, data.x_test, data.y_test, batch_size=48)
    assert parts.accuracy == pytest.approx(whole.accuracy)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-5)


@pytest.mark.parametrize("norm", ["batch_norm", "layer_norm", "rms_norm"])
def test_norms_share_their_initial_weights(norm):
    plain, normed = make_mlp((64, 8, 10), seed=5), make_mlp((64, 8, 10), norm, seed=5)
    assert torch.equal(plain[0].weight, normed[0].weight)
    assert torch.equal(plain[-1].weight, normed[-1].weight)
    assert not torch.equal(plain[0].weight, make_mlp((64, 8, 10), seed=6)[0].weight)
    assert type(normed[1]).__module__.startswith("normlab.layers")


def test_building_a_network_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    make_mlp((4, 4, 2), "batch_norm", seed=1, init="he")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("norm", ["none", "batch_norm", "group_norm", "layer_norm"])
def test_convnet_shapes(norm):
    model = make_convnet((1, 4, 6), norm, seed=0)
    assert model(torch.rand(3, 1, 8, 8)).shape == (3, 10)


def test_image_norms_average_over_their_cells():
    x = 3 + torch.randn(4, 6, 5, 2, generator=torch.Generator().manual_seed(0))
    for name, dims in {
        "batch_norm": (0, 2, 3),
        "group_norm": (1, 2, 3),
        "layer_norm": (1,),
    }.items():
        means = make_image_norm(name, 6)(x).mean(dims)
        torch.testing.assert_close(means, torch.zeros_like(means), atol=1e-5, rtol=0)
    assert torch.equal(make_image_norm("none", 6)(x), x)


def test_he_initialization_has_its_variance():
    layer = make_mlp((400, 300, 10), seed=0, init="he")[0]
    assert layer.weight.detach().std() == pytest.approx(math.sqrt(2 / 400), rel=0.02)
    assert layer.bias.abs().max() == 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make_feature_norm("group_norm", 3), "name: got 'group_norm'"),
        (lambda: make_image_norm("rms_norm", 3), "name: got 'rms_norm'"),
        (lambda: make_mlp((3,), seed=0), "widths: got"),
        (lambda: make_mlp((3, 4, 2), seed=0, activation="gelu"), "activation: got 'gelu'"),
        (lambda: make_mlp((3, 4, 2), seed=0, init="orthogonal"), "init: got 'orthogonal'"),
        (lambda: make_convnet((1,), seed=0), "channels: got"),
    ],
)
def test_unknown_names_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_the_batch_norm_module_is_ours():
    assert isinstance(make_feature_norm("batch_norm", 3), BatchNorm1d)


def test_errors_are_rounded_up_to_powers_of_ten():
    given = (3e-7, 1e-3, 0.0, 1e-15)
    assert [power_above(e) for e in given] == pytest.approx([1e-6, 1e-3, 1e-12, 1e-12])


def test_signs_are_redrawn_and_sizes_stay():
    starts = [torch.zeros(50, 40), torch.ones(30)]
    steps = [torch.arange(2000.0).view(50, 40), torch.full((30,), 0.5)]
    weights = [start + step for start, step in zip(starts, steps, strict=True)]
    redraw_signs_(weights, starts, seed=0)
    for weight, start, step in zip(weights, starts, steps, strict=True):
        torch.testing.assert_close((weight - start).abs(), step)
    assert 0.45 < (weights[0] > 0).double().mean() < 0.55
