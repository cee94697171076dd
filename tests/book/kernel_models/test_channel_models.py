"""BatchNorm's and GroupNorm's models against the float64 reference, and when broken."""

import numpy as np
import pytest

from normlab.book.kernel_models import (
    batch_statistics,
    batch_transform,
    group_statistics,
    group_transform,
)
from normlab.book.kernel_models import group_paths as group_module
from normlab.reference import batch_norm, group_norm

UNIT = 2.0**-24
SHAPES = [(5, 6), (5, 6, 1), (3, 6, 7), (2, 6, 9, 5), (1, 12, 33, 33)]


def _numbers(shape, mean=0.5):
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape).astype(np.float32)
    weight, bias = rng.uniform(0.5, 2.0, (2, shape[1])).astype(np.float32)
    return x + np.float32(mean), weight, bias


def _bound(terms, largest):
    """One term after the other in float32, and twenty roundings more."""
    return 2 * UNIT * (terms + 20) * largest


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm_is_right(shape, channels_last, fused):
    x, weight, bias = _numbers(shape)
    y, _ = batch_norm(x, None, None, weight, bias, True)
    statistics = batch_statistics(x, channels_last=channels_last, fused=fused)
    terms = x.size // shape[1]
    found = batch_transform(x, statistics, weight, bias, fused=fused)
    assert np.abs(found - y).max() <= _bound(terms, 2 * np.abs(y).max())


def test_batch_sums_are_float64_only_for_planes():
    """Far from 0 the two ways differ by what a float32 sum of many terms loses."""
    rows, _, _ = _numbers((20000, 3), mean=50)
    planes = np.ascontiguousarray(rows.T)[None]
    exact = rows.astype(np.float64).mean(0)
    by_row = np.abs(batch_statistics(rows).mean - exact).max()
    by_plane = np.abs(batch_statistics(planes).mean - exact).max()
    in_format = np.abs(batch_statistics(planes, channels_last=True).mean - exact).max()
    assert by_plane <= UNIT * 51
    assert by_row == in_format > 5 * by_plane


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("given", ["both", "weight", "bias", "none"])
@pytest.mark.parametrize("shape", SHAPES[1:])
def test_group_norm_is_right(shape, given, channels_last, fused):
    x, weight, bias = _numbers(shape)
    weight = weight if given in ("both", "weight") else None
    bias = bias if given in ("both", "bias") else None
    for num_groups in (1, 2, 6):
        y, _ = group_norm(x, num_groups, weight, bias)
        if x[0].size == num_groups:
            continue
        statistics = group_statistics(x, num_groups, channels_last=channels_last, fused=fused)
        found = group_transform(
            x, statistics, weight, bias, channels_last=channels_last, fused=fused
        )
        terms, worst = x[0].size // num_groups, float(statistics.rstd.max()) ** 2
        assert np.abs(found - y).max() <= _bound(terms, 4 * worst * np.abs(y).max())


def test_channels_last_cancels_and_contiguous_does_not():
    x, _, _ = _numbers((8, 4, 8, 8), mean=1e4)
    exact = (1 / np.sqrt(x.astype(np.float64).reshape(8, 2, -1).var(-1) + 1e-5)).ravel()
    contiguous = group_statistics(x, 2).rstd.ravel()
    channels_last = group_statistics(x, 2, channels_last=True).rstd.ravel()
    assert np.abs(contiguous / exact - 1).max() < 1e-3
    assert np.abs(channels_last / exact - 1).max() > 0.1


def test_a_negative_variance_becomes_0():
    noise, _, _ = _numbers((8, 4, 8, 8), mean=0)
    x = np.float32(1e4) + np.float32(0.01) * noise
    rstd = group_statistics(x, 2, channels_last=True).rstd
    assert (rstd == np.float32(1 / np.sqrt(1e-5))).sum() >= 4


def test_planes_of_one_value_count_as_contiguous():
    x, _, _ = _numbers((20, 60, 1, 1))
    contiguous = group_statistics(x, 5)
    channels_last = group_statistics(x, 5, channels_last=True)
    np.testing.assert_array_equal(contiguous.rstd, channels_last.rstd)
    wide = group_statistics(x.reshape(20, 5, 1, 12), 5, channels_last=True)
    assert (contiguous.rstd != wide.rstd).any()


def test_large_planes_take_the_other_sums(monkeypatch):
    x, _, _ = _numbers((2, 40, 32, 32))
    expected = group_statistics(x, 2, channels_last=True)
    monkeypatch.setattr(group_module, "LARGE_PLANE", 1025)
    other = group_statistics(x, 2, channels_last=True)
    assert (expected.mean != other.mean).any()
    np.testing.assert_allclose(other.mean, expected.mean, rtol=0, atol=_bound(20480, 1))


def _without_last_channels(groups, lanes, fused):
    return _small_sums(groups[:, :, : groups.shape[2] // lanes * lanes], lanes, fused)


def _one_position_lost(groups, lanes, fused):
    return _small_sums(groups[..., 1:], lanes, fused)


_small_sums = group_module._small_plane_sums


@pytest.mark.parametrize("mutant", [_without_last_channels, _one_position_lost])
def test_a_broken_group_path_is_rejected(mutant, monkeypatch):
    monkeypatch.setattr(group_module, "_small_plane_sums", mutant)
    with pytest.raises(AssertionError):
        test_group_norm_is_right((2, 6, 9, 5), "both", True, True)


@pytest.mark.parametrize("mistake", ["bessel", "mean after"])
def test_a_broken_batch_norm_is_rejected(mistake, monkeypatch):
    right = batch_statistics

    def wrong(x, eps=1e-5, **arguments):
        found = right(x, eps, **arguments)
        terms = np.size(x) // np.shape(x)[1]
        if mistake == "bessel":
            return found._replace(invstd=found.invstd * np.float32(np.sqrt(1 - 1 / terms)))
        return found._replace(mean=found.mean + np.float32(1e-3))

    monkeypatch.setitem(globals(), "batch_statistics", wrong)
    with pytest.raises(AssertionError):
        test_batch_norm_is_right((3, 6, 7), False, True)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: batch_statistics(np.ones(3)), "x: got shape"),
        (lambda: batch_statistics(np.ones((0, 3))), "x: got shape"),
        (lambda: group_statistics(np.ones((2, 6, 4)), 4), "num_groups: got 4 for 6 channels"),
        (lambda: group_statistics(np.ones((2, 6, 4)), 0), "num_groups: got 0"),
    ],
)
def test_wrong_arguments_are_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()
