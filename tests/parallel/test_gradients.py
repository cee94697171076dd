"""Norm gradients of which each process has a part."""

from __future__ import annotations

import models
import pytest
import torch

ALL = ("norm_1.weight", "norm_1.bias", "norm_2.weight", "norm_2.bias")
LINEAR = ("linear.weight", "linear.bias")


def make(tokens=8):
    g = torch.Generator().manual_seed(3)
    return torch.randn(2, tokens, 6, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("norm", ["torch", "ours", "rms"])
@pytest.mark.parametrize("shards", [(5, 3), (8, 0)])
def test_the_sum_is_the_gradient_of_one_process(two, norm, shards):
    x, dy = make()
    _, _, right = models.gradients(x, dy, None, norm, False)
    names = [n for n in ALL if n in right]
    for partial, reduced, left, found in two.run(models.gradients, x, dy, shards, norm, True):
        assert set(partial) == {*names, *LINEAR}
        assert list(reduced) == names
        assert set(left) == set(LINEAR)
        for name in names:
            torch.testing.assert_close(found[name], right[name], rtol=0, atol=1e-12)


def test_without_it_the_gradient_is_wrong(two):
    x, dy = make()
    _, _, right = models.gradients(x, dy, None, "torch", False)
    for *_, found in two.run(models.gradients, x, dy, (5, 3), "torch", False):
        assert float((found["norm_1.weight"] - right["norm_1.weight"]).abs().max()) > 0.1


def test_a_norm_that_sums_by_itself_is_left_alone(two):
    x, dy = make()
    _, _, right = models.gradients(x, dy, None, "rms", False)
    for partial, reduced, _, found in two.run(
        models.gradients, x, dy, (5, 3), "sums by itself", True
    ):
        assert set(partial) == set(LINEAR)
        assert reduced == ()
        torch.testing.assert_close(
            found["norm_1.weight"], right["norm_1.weight"], rtol=0, atol=1e-12
        )


def test_a_second_sum_is_refused_until_the_gradient_changes(two):
    for message, again in two.run(models.reduce_twice, torch.randn(4, 6)):
        assert message.startswith("norm_1.weight: its gradient was summed over the group already")
        assert again == 4


def test_a_parameter_that_one_process_did_not_use(two):
    x = torch.randn(4, 3)
    leaf = torch.nn.LayerNorm(3)
    leaf(x).square().sum().backward()
    for partial, reduced, used, unused in two.run(models.unused_on_one, x):
        assert partial == reduced == ("0.weight", "0.bias")
        torch.testing.assert_close(used, leaf.weight.grad)
        assert unused is None


def test_a_gradient_of_zeros_tells_nothing_and_says_so(two):
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    for partial, said in two.run(models.closed_branch, x, 0.0):
        assert set(partial) == set(LINEAR)
        assert "norm_1.weight, norm_1.bias: the gradient is zero on all processes" in said[-1]


def test_fresh_weights_tell_nothing_and_say_so(two):
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    for fresh in (True, False):
        for partial, said in two.run(models.closed_branch, x, 1.0, fresh):
            assert set(partial) == {"norm_1.weight", "norm_1.bias", *LINEAR}
            assert len(said) == fresh
            assert all("norm_1.weight, norm_1.bias: all entries are equal" in m for m in said)


def test_a_last_digit_is_no_part(two):
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    assert two.run(models.rounded_otherwise, x) == [(), ()]


def test_one_process_has_everything():
    model = models.Block(torch.nn.LayerNorm)
    assert models.parallel.reduce_norm_gradients(model) == ()
