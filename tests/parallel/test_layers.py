"""The parallel norms against one process with everything, whatever the shares."""

from __future__ import annotations

import math

import on_ranks
import pytest
import torch
from torch.nn import functional as F

from normlab.layers import batch_norm, layer_norm, rms_norm

TWO = ((5, 3), (4, 4), (7, 0), (1, 1))
FOUR = (2, 1, 4, 1)
SHARES = [*TWO, FOUR]
EPS = on_ranks.EPS


def make(shape, *, axis=1, seed=0, offset=0.0, dtype=torch.float64):
    """Input, weight, bias and upstream gradient."""
    g = torch.Generator().manual_seed(seed)
    x, dy = (torch.randn(shape, generator=g, dtype=torch.float64) for _ in range(2))
    weight, bias = (torch.randn(shape[axis], generator=g, dtype=torch.float64) for _ in range(2))
    return tuple(t.to(dtype) for t in (x + offset, 1.5 + weight / 2, bias, dy))


def pool(shards, two, four):
    return two if len(shards) == 2 else four


def join(shares, axis):
    return torch.cat([s.y for s in shares], axis), torch.cat([s.dx for s in shares], axis)


def assert_close(found, right, limit=1e-12):
    assert found.shape == right.shape
    assert float((found - right).abs().max()) <= limit


def whole_batch(x, weight, bias, dy, steps=1):
    mean, var = torch.zeros_like(weight), torch.ones_like(weight)
    for _ in range(steps - 1):
        F.batch_norm(x, mean, var, weight, bias, True, 0.1, EPS)
    share = on_ranks.differentiate(
        lambda *p: F.batch_norm(p[0], mean, var, *p[1:], True, 0.1, EPS), x, weight, bias, dy
    )
    return share._replace(running_mean=mean, running_var=var)


@pytest.mark.parametrize("shards", SHARES)
@pytest.mark.parametrize(("function", "steps"), [(on_ranks.batch, 1), (on_ranks.batch_module, 2)])
@pytest.mark.parametrize("positions", [(), (3, 2)])
def test_sync_batch_norm(two, four, function, steps, positions, shards):
    given = make((sum(shards), 5, *positions))
    right = whole_batch(*given, steps=steps)
    shares = pool(shards, two, four).run(function, shards, *given)
    y, dx = join(shares, 0)
    assert_close(y, right.y)
    assert_close(dx, right.dx)
    assert_close(sum(s.dweight for s in shares), right.dweight)
    assert_close(sum(s.dbias for s in shares), right.dbias)
    for share in shares:
        assert_close(share.running_mean, right.running_mean)
        assert_close(share.running_var, right.running_var)
        assert torch.equal(share.running_var, shares[0].running_var)


def test_the_gradient_of_one_rank_is_a_part(two):
    given = make((8, 5))
    right = whole_batch(*given).dweight
    for share in two.run(on_ranks.batch, (5, 3), *given):
        assert float((share.dweight - right).abs().max()) > 0.1


@pytest.mark.parametrize("shards", SHARES)
@pytest.mark.parametrize("function", [on_ranks.features_layer, on_ranks.features_rms])
def test_features_on_several_processes(two, four, function, shards):
    x, weight, bias, dy = make((3, 4, sum(shards)), axis=2)
    if function is on_ranks.features_rms:
        bias = None
        norm = lambda x, w: F.rms_norm(x, w.shape, w, EPS)  # noqa: E731
    else:
        norm = lambda x, w, b: F.layer_norm(x, w.shape, w, b, EPS)  # noqa: E731
    right = on_ranks.differentiate(norm, x, weight, bias, dy)
    shares = pool(shards, two, four).run(function, shards, x, weight, bias, dy)
    y, dx = join(shares, -1)
    assert_close(y, right.y)
    assert_close(dx, right.dx)
    assert_close(torch.cat([s.dweight for s in shares]), right.dweight)
    if bias is not None:
        assert_close(torch.cat([s.dbias for s in shares]), right.dbias)


@pytest.mark.parametrize("shards", SHARES)
def test_heads_on_several_processes(two, four, shards):
    heads = sum(shards)
    x, weight, _, dy = make((2, heads, 3, 4), axis=3)
    right = on_ranks.differentiate(lambda x, w: F.rms_norm(x, w.shape, w, EPS), x, weight, None, dy)
    shares = pool(shards, two, four).run(on_ranks.query_heads, shards, x, weight, None, dy)
    y, dx = join(shares, 1)
    assert_close(y, right.y)
    assert_close(dx, right.dx)
    for share in shares:
        assert_close(share.dweight, right.dweight)


@pytest.mark.parametrize("shards", SHARES)
def test_all_heads_together(two, four, shards):
    x, _, _, dy = make((2, sum(shards), 3, 4))
    weight = 1.5 + torch.randn(sum(shards), 4, dtype=torch.float64).tanh() / 2

    def norm(x, w):
        y = F.rms_norm(x.transpose(1, 2).flatten(2), (w.numel(),), w.flatten(), EPS)
        return y.unflatten(-1, w.shape).transpose(1, 2)

    right = on_ranks.differentiate(norm, x, weight, None, dy)
    shares = pool(shards, two, four).run(on_ranks.all_query_heads, shards, x, weight, None, dy)
    y, dx = join(shares, 1)
    assert_close(y, right.y)
    assert_close(dx, right.dx)
    assert_close(torch.cat([s.dweight for s in shares]), right.dweight)


PLAIN = {
    on_ranks.plain_batch: (0, whole_batch, "summed"),
    on_ranks.plain_features_rms: (
        -1,
        lambda x, w, b, dy: on_ranks.differentiate(
            lambda x, w: F.rms_norm(x, w.shape, w, EPS), x, w, None, dy
        ),
        "joined",
    ),
    on_ranks.plain_features_layer: (
        -1,
        lambda *given: on_ranks.differentiate(
            lambda x, w, b: F.layer_norm(x, w.shape, w, b, EPS), *given
        ),
        "joined",
    ),
    on_ranks.plain_tokens_rms: (
        0,
        lambda x, w, b, dy: on_ranks.differentiate(
            lambda x, w: F.rms_norm(x, w.shape, w, EPS), x, w, None, dy
        ),
        "equal",
    ),
}


@pytest.mark.parametrize("shards", [(5, 3), FOUR])
@pytest.mark.parametrize("function", PLAIN, ids=lambda f: f.__name__)
def test_plain(two, four, function, shards):
    axis, whole, weights = PLAIN[function]
    given = make((sum(shards), 6) if axis == 0 else (6, sum(shards)))
    right = whole(*given)
    shares = pool(shards, two, four).run(function, shards, *given)
    y, dx = join(shares, axis)
    assert_close(y, right.y)
    assert_close(dx, right.dx)
    found = [s.dweight for s in shares]
    put = {"summed": sum, "joined": torch.cat, "equal": lambda parts: parts[-1]}[weights]
    assert_close(put(found), right.dweight)


@pytest.mark.parametrize("norm", ["batch", "features_layer", "features_rms"])
def test_a_large_mean_in_float32(two, norm):
    """At most twice the error of our layer in one process, or four units in the last place."""
    axis = 0 if norm == "batch" else -1
    exact = make((64, 64), offset=1e4, dtype=torch.float32)
    x, weight, bias, dy = (t.double() for t in exact)
    if norm == "features_rms":
        bias, exact = None, (*exact[:2], None, exact[3])
        one = lambda x, w: rms_norm(x, w.shape, w, EPS)  # noqa: E731
    elif norm == "batch":
        one = lambda x, w, b: batch_norm(x, None, None, w, b, True, 0.1, EPS)  # noqa: E731
    else:
        one = lambda x, w, b: layer_norm(x, w.shape, w, b, EPS)  # noqa: E731
    right = on_ranks.differentiate(one, x, weight, bias, dy)
    alone = on_ranks.differentiate(one, *exact)
    shares = two.run(getattr(on_ranks, norm), (40, 24), *exact)
    y, dx = join(shares, axis)
    for found, single, best in ((y, alone.y, right.y), (dx, alone.dx, right.dx)):
        largest = float(best.abs().max())
        floor = 4 * 2.0 ** (math.floor(math.log2(largest)) - 23)
        limit = max(2 * float((single - best).abs().max()), floor)
        assert float((found - best).abs().max()) <= limit


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_input_and_counts_that_it_could_not_hold(two, dtype):
    """2,049 samples: neither dtype counts so far."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2049 + 1000, 3, generator=g) * 2 + 5
    weight = torch.tensor([1.5, 0.5, 2.0])
    shares = two.run(on_ranks.half, (2049, 1000), dtype, x, weight)
    mean, var = torch.zeros(3), torch.ones(3)
    right = F.batch_norm(x.to(dtype).float(), mean, var, weight, weight, True, 0.1, EPS)
    y = torch.cat([share[0] for share in shares])
    assert y.dtype == dtype
    assert (
        torch.equal(y, right.to(dtype))
        or float((y.float() - right).abs().max() / right.abs().max()) <= torch.finfo(dtype).eps
    )
    for _, found_mean, found_var in shares:
        torch.testing.assert_close(found_mean, mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found_var, var, rtol=1e-6, atol=1e-6)


def test_second_derivatives(two):
    x, weight, bias, dy = make((8, 5))
    leaf = x.clone().requires_grad_()
    y = batch_norm(leaf, None, None, weight, bias, True, 0.1, EPS)
    (dx,) = torch.autograd.grad(y, leaf, dy, create_graph=True)
    right = torch.autograd.grad(dx.tanh().sum(), leaf)[0]
    assert_close(torch.cat(two.run(on_ranks.second_gradient, (5, 3), x, weight, bias, dy)), right)


def test_evaluation_sends_nothing(two):
    x = torch.randn(4, 3)
    first, second = two.run(on_ranks.evaluation_alone, x, torch.ones(3))
    torch.testing.assert_close(first, x, rtol=1e-4, atol=1e-4)
    assert second is None


def test_groups_share_no_statistics(four):
    x = torch.randn(4, 6, 3)
    found = four.run(on_ranks.two_groups, x)
    for pair in (0, 2):
        right = batch_norm(x[pair : pair + 2].flatten(0, 1), None, None, training=True)
        torch.testing.assert_close(torch.cat(found[pair : pair + 2]), right)


def test_a_process_that_is_not_in_the_group_is_told(two):
    _, message = two.run(on_ranks.foreign_group, torch.ones(2, 3))
    assert message.startswith("group: process 1 is not a member of it; expected")


def test_one_value_on_all_processes_together(two):
    for message in two.run(on_ranks.one_value):
        assert "one value per channel on all processes together" in message


def test_no_sample_anywhere(two):
    for y, dx, mean, var in two.run(on_ranks.nobody):
        assert y.shape == dx.shape == (0, 3)
        assert mean.tolist() == [0, 0, 0]
        assert var.tolist() == [1, 1, 1]


def test_what_all_use_gets_the_gradients_of_all(two):
    assert two.run(on_ranks.identity_of_sum) == [(3.0, 3.0), (3.0, 3.0)]


def test_torchs_own_layer_cannot_run_here(two):
    """So nothing above can have come from its kernels."""
    for message in two.run(on_ranks.torchs_own):
        assert message.startswith("SyncBatchNorm expected input tensor to be on GPU")


def test_no_batch_norm_kernel_is_called(two):
    for names in two.run(on_ranks.operators):
        assert any("allgather" in name for name in names)
        assert any("allreduce" in name for name in names)
        assert [name for name in names if "batch_norm" in name] == []
