"""The batch norm experiments in a small size: what they claim, and that a seed fixes them."""

import pytest
import torch

from normlab.book.experiments.batch_norm import convnet as convnets
from normlab.book.experiments.batch_norm import folding as foldings
from normlab.book.experiments.batch_norm.batch_composition import batch_composition
from normlab.book.experiments.batch_norm.batch_noise import batch_noise
from normlab.book.experiments.batch_norm.batch_sizes import batch_sizes
from normlab.book.experiments.batch_norm.constant_statistics import constant_statistics
from normlab.book.experiments.batch_norm.convnet import convnet
from normlab.book.experiments.batch_norm.depth_gradients import depth_gradients, predicted_growth
from normlab.book.experiments.batch_norm.folding import folding
from normlab.book.experiments.batch_norm.initial_scale import initial_scale
from normlab.book.experiments.batch_norm.learning_rates import learning_rates
from normlab.book.experiments.batch_norm.noise_and_gap import GhostBatchNorm, noise_and_gap
from normlab.book.experiments.batch_norm.norm_order import make_network, norm_order
from normlab.book.experiments.batch_norm.train_eval import train_eval
from normlab.book.experiments.tables import where
from normlab.layers import BatchNorm1d, BatchNorm2d

# What is subtracted, and what is divided by.
PARTS = [("batch", "batch"), ("batch", "none"), ("none", "batch"), ("batch", "image")]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("run", "settings"),
    [
        (batch_sizes, {"epochs": 1, "batch_size": 32}),  # of two, an epoch has 600 steps
        (batch_composition, {"steps": 25}),
        (batch_noise, {"draws": 5}),
        (noise_and_gap, {"steps": 3}),
        (learning_rates, {"steps": 3}),
        (initial_scale, {"steps": 25}),
        (norm_order, {"steps": 25}),
        (train_eval, {"check_at": (1, 2)}),
        (convnet, {"steps": 10}),
        (depth_gradients, {"depth": 4, "width": 16, "batch_size": 8}),
        (constant_statistics, {"steps": 5}),
        (folding, {"steps": 3}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_seed_fixes_every_number(run, settings):
    point = {axis: values[-1] for axis, values in run.grid.items()} | settings
    assert run(**point) == run(**point)


def test_a_run_that_diverges_has_no_training_loss():
    lost = batch_sizes("none", 128, 1e30, seed=0, epochs=1)
    assert lost["train_loss"] is None
    assert lost["eval_loss"] is None
    assert lost["eval_accuracy"] < 0.3


def test_noise_falls_with_the_root_of_the_batch_size():
    table = batch_noise.sweep(batch_size=[4, 64], seed=range(3))
    noise = table.groupby(["norm", "batch_size"]).noise.median()
    assert 3.2 < noise["batch_norm", 4] / noise["batch_norm", 64] < 5.0  # root of 16
    assert noise["layer_norm", 4] < 1e-5


def test_the_norm_stands_where_it_is_said_to():
    networks = {order: make_network(order, seed=0) for order in norm_order.grid["order"]}
    kinds = {order: [type(m).__name__ for m in model] for order, model in networks.items()}
    first = {order: names[1:3] for order, names in kinds.items()}
    assert first["before the ReLU"] == ["BatchNorm1d", "ReLU"]
    assert first["after the ReLU"] == ["ReLU", "BatchNorm1d"]
    assert "BatchNorm1d" not in kinds["no norm"]
    assert kinds["after the ReLU"][4:6] == ["ReLU", "BatchNorm1d"]
    weights = [model[0].weight for model in networks.values()]
    assert torch.equal(weights[1], weights[2])


def test_ghost_batch_norm_normalizes_each_part_by_itself():
    layer = GhostBatchNorm(BatchNorm1d(3), ghost_size=4)
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


def test_gradients_explode_through_batch_norm():
    table = depth_gradients.sweep(seed=[0], depth=12, width=256)
    growth = table.set_index("norm").growth
    assert growth["batch_norm"] == pytest.approx(predicted_growth(), rel=0.06)
    assert growth["none"] == pytest.approx(1, rel=0.12)
    assert growth["layer_norm"] == pytest.approx(1, rel=0.12)
    assert where(table, norm="none").squared_norms.item()[-1] == 1.0


def test_a_constant_mean_lets_the_bias_run_away():
    cut = constant_statistics(through_statistics=False, steps=100)
    assert cut["biases"][-1] == pytest.approx(100 * 0.5 * 0.25)
    assert cut["losses"][-1] == pytest.approx(0.25**2 / 2)
    assert max(cut["losses"]) - min(cut["losses"]) < 1e-12
    whole = constant_statistics(through_statistics=True, steps=100)
    assert abs(whole["biases"][-1]) < 1e-12


def test_samples_differ_less_behind_layer_norm():
    bn, ln = (convnets.differing_share(g, 0) for g in ("batch_norm", "layer_norm"))
    assert 0 < ln < 0.6 * bn < 1


def test_what_samples_share_grows_back_behind_a_mean_that_is_kept():
    kept, anew = ("mean of the start, He init", "mean only, He init")
    fresh = [convnets.differing_share(g, 0) for g in (kept, anew)]
    trained = [convnets.differing_share(g, 0, steps=16) for g in (kept, anew)]
    assert fresh[0] == fresh[1] and trained[0] < 0.8 * fresh[0] < fresh[1] < trained[1]


def test_ghosts_of_the_whole_batch_are_batch_norm():
    groups = ("batch_norm", "ghosts of 8", "ghosts of 2")
    plain, whole, parts = (convnet(g, 8, 0.1, seed=0, steps=25) for g in groups)
    assert plain == whole != parts


def test_the_parts_of_batch_norm_together_are_batch_norm():
    x = 3 + 2 * torch.randn(4, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    whole = BatchNorm2d(2)(x)
    parts = {kind: convnets.PartialBatchNorm(2, *kind) for kind in PARTS}
    assert torch.allclose(parts["batch", "batch"](x), whole, atol=1e-6)
    in_turn = parts["none", "batch"](parts["batch", "none"](x))
    assert torch.allclose(in_turn, whole, atol=1e-6)
    kept = [kind for kind, part in parts.items() if torch.allclose(part(x), whole, atol=0.1)]
    assert kept == [("batch", "batch")]


def test_no_gradient_passes_through_a_mean_that_is_cut_off():
    x = torch.randn(4, 2, 5, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    dy = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    for mean, centers in (("batch", True), ("batch, no gradient", False)):
        y = convnets.PartialBatchNorm(2, mean, "none")(x)
        assert y.mean((0, 2, 3)).abs().max() < 1e-6
        (dx,) = torch.autograd.grad(y, x, dy)
        assert (dx.mean((0, 2, 3)).abs().max() < 1e-6) == centers


def test_one_subtraction_stands_before_the_output_alone():
    x = torch.rand(16, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    once, plain = (
        convnets.make_network(group, 0)
        for group in ("mean at the output, He init", "none, He init")
    )
    features = plain[:-1](x)
    assert features.mean(0).abs().max() > 0.01
    assert torch.allclose(once[:-1](x), features - features.mean(0), atol=1e-6)


def test_the_mean_of_the_start_stays_that_of_the_first_batch():
    layer = convnets.PartialBatchNorm(1, "start", "none")
    layer(torch.full((2, 1, 2, 2), 5.0))
    assert (layer(torch.full((2, 1, 2, 2), 7.0)) == 2).all()
    assert (convnets.PartialBatchNorm(1, "batch", "none")(torch.full((2, 1, 2, 2), 7.0)) == 0).all()


def test_folding_is_exact():
    found = folding(seed=0, steps=10)
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
    torch.testing.assert_close(foldings.fold_batch_norm(linear, norm)(x), norm(linear(x)))


def test_folding_needs_running_statistics():
    with pytest.raises(ValueError, match="track_running_stats=False"):
        foldings.fold_batch_norm(torch.nn.Linear(2, 2), BatchNorm1d(2, track_running_stats=False))
