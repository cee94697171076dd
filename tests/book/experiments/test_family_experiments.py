"""What each layer forgets, against what its formula says; parts of a batch; rotations."""

import math

import pytest
import torch

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.family.batch_statistics import draw_statistics, find_gradient_share
from normlab.book.experiments.family.forgetting import CHANGES, LAYERS, find_forgotten
from normlab.book.experiments.family.small_batches import (
    NORMS,
    OVER_BATCH,
    LearnedEps,
    make_network,
    small_batches,
    widen_bounds,
)
from normlab.book.experiments.family.turning import follow_direction
from normlab.book.experiments.today.rotation import rotate
from normlab.layers import BatchRenorm2d

OTHERS, FACTOR, CHANNEL, SHIFT = CHANGES
EXPECTED = {
    "batch norm": {FACTOR, CHANNEL, SHIFT},
    "batch renorm": {OTHERS},
    "group norm": {FACTOR, SHIFT, OTHERS},
    "instance norm": {FACTOR, CHANNEL, SHIFT, OTHERS},
    "layer norm": {FACTOR, SHIFT, OTHERS},
    "RMS norm": {FACTOR, OTHERS},
    "filter response norm": {FACTOR, CHANNEL, OTHERS},
}


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_forgotten(seed):
    assert find_forgotten(seed) == EXPECTED
    assert set(LAYERS) == set(EXPECTED)


def test_a_rotation_keeps_lengths_and_products_of_equal_distances():
    x = torch.randn(2, 3, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = rotate(x)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(y[..., 0, :], x[..., 0, :])
    same = rotate(x[..., :1, :].expand(-1, -1, 9, -1))  # one vector at every place
    near = (same[..., :-1, :] * same[..., 1:, :]).sum(-1)
    torch.testing.assert_close(near, near[..., :1].expand_as(near))
    assert (y - x).abs().max() > 0.5
    with pytest.raises(ValueError, match="even number"):
        rotate(x[..., :7])


def test_only_a_norm_over_the_batch_sees_that_the_images_come_in_parts():
    x = load_digits_split(0).as_images().x_train[:32]
    for group in NORMS:
        whole, parts = (
            make_network(group, (1, 8, 8), part_size=size, seed=0).train()(x) for size in (32, 4)
        )
        differ = (whole - parts).abs().max() > 1e-3
        assert differ == (group in OVER_BATCH), group


def test_one_seed_gives_every_group_the_same_weights():
    weights = {
        group: next(make_network(group, (1, 8), part_size=2, seed=3).parameters())
        for group in ("none", "batch_norm", "filter_response_norm, learned eps")
    }
    first, *others = weights.values()
    assert all(torch.equal(first, other) for other in others)
    other_seed = next(make_network("none", (1, 8), part_size=2, seed=4).parameters())
    assert not torch.equal(first, other_seed)


def test_the_bounds_of_batch_renorm_widen_from_those_of_batch_norm():
    model = make_network("batch_renorm", (1, 8), part_size=2, seed=0)
    norm = next(m for m in model.modules() if isinstance(m, BatchRenorm2d))
    seen = []
    for done in (0.0, 0.1, 0.3, 0.5, 1.0):
        widen_bounds(model, done)
        seen += [norm.r_max, norm.d_max]
    assert seen == pytest.approx([1, 0, 1, 0, 2, 2.5, 3, 5, 3, 5])


def test_a_sweep_over_parts_trains_the_others_once():
    short = {"channels": (1, 4, 4), "steps": 10}
    groups = ["batch_norm", "batch_renorm", "group_norm"]
    found = small_batches.sweep(group=groups, part_size=[32, 2], lr=[0.1], seed=[0], **short)
    assert list(zip(found.group, found.part_size, strict=True)) == [
        ("batch_norm", 32),
        ("batch_norm", 2),
        ("batch_renorm", 2),
        ("group_norm", 32),
    ]
    alone = small_batches("group_norm", 32, 0.1, seed=0, **short)
    assert alone.items() <= dict(found.loc[3]).items()
    assert found.train_loss.nunique() == 4
    assert found.validation_loss.between(0, 3).all() and found.test_wrong.between(0, 500).all()
    diverged = small_batches("group_norm", 8, 1e30, seed=0, **short)
    assert diverged["train_loss"] is None and diverged["validation_loss"] is None


def test_the_learned_eps_is_part_of_the_function():
    layer = LearnedEps(2)
    x = torch.tensor([0.01, 3.0]).view(1, 2, 1, 1)
    expected = x / (x.square() + 1e-6 + 1e-4).sqrt()
    torch.testing.assert_close(layer(x), expected)
    layer.learned_eps.data.fill_(-1.0)
    torch.testing.assert_close(layer(x), x / (x.square() + 1 + 1e-6).sqrt())
    layer(x).backward(torch.tensor([0.7, -1.3]).view_as(x))
    assert layer.learned_eps.grad.abs().min() > 0


def test_statistics_of_few_images_scatter_more_and_surround_those_of_all():
    found = draw_statistics((2, 8, 128))
    offsets = {size: torch.tensor(x) for size, (x, _) in found.items()}
    assert offsets[2].std() > 1.5 * offsets[8].std() > 3 * offsets[128].std()
    ratios = torch.tensor(found[128][1])
    assert abs(offsets[128].mean()) < 0.05 and abs(ratios.mean() - 1) < 0.05
    # the variance of two independent values is half of all on average
    assert abs(torch.tensor(found[2][1]).square().mean() - 0.5) < 0.15
    assert found == draw_statistics((2, 8, 128))
    with pytest.raises(ValueError, match="sizes"):
        draw_statistics((1, 8))


def test_the_gradient_of_pairs_comes_through_a_few_values():
    shares = {size: find_gradient_share(size, batches=3) for size in (32, 4, 2)}
    assert shares[2] > 0.9 > 0.7 > shares[4] > shares[32] > 0.01
    # all values carry all of it, whatever the statistics
    assert find_gradient_share(2, top=1.0, batches=1) == pytest.approx(1)


def test_under_weight_norm_a_direction_lengthens_and_turns_less():
    found = follow_direction(60)
    assert found.lengths == sorted(found.lengths)
    assert sum(found.degrees[:20]) > 1.5 * sum(found.degrees[-20:])
    # a step is orthogonal to v, so the tangent of the turn is its length over that of v
    for before, after, turn in zip(
        found.lengths, found.lengths[1:], found.degrees[1:], strict=False
    ):
        assert math.cos(math.radians(turn)) == pytest.approx(before / after, abs=1e-9)
