"""Each wrong block and initialization is rejected under its own name; the right ones pass."""

import pytest
import torch
from torch import nn

from normlab.checks.mutants import mutants
from normlab.checks.residual import check_deep_norm_init, check_residual
from normlab.residual import DeepNorm, PostNorm, PreNorm, deep_norm_init_


def build_deep_norm(sublayer, norm, alpha):
    return DeepNorm(sublayer, norm, alpha=alpha)


def test_the_packages_own_blocks_pass():
    for report in (
        check_residual(build_deep_norm, like="deep_norm"),
        check_residual(PostNorm, like="post_norm"),
        check_residual(PreNorm, like="pre_norm"),
        check_deep_norm_init(deep_norm_init_),
        check_deep_norm_init(deep_norm_init_, beta=0.9),
    ):
        assert report.passed, str(report)
        assert len(report.checks) == 2


@pytest.mark.parametrize("like", ["deep_norm", "pre_norm"])
def test_wrong_blocks_are_named(like):
    for mutant in mutants(like):
        report = check_residual(mutant.make(), like=like)
        assert not report.passed
        assert report.failures[0].mistake == mutant.mistake, str(report)


def test_blocks_taken_for_each_other():
    report = check_residual(PreNorm, like="post_norm")
    assert report.failures[0].mistake == "norm before the branch"
    assert "alpha" not in report.failures[0].message
    report = check_residual(PostNorm, like="pre_norm")
    assert report.failures[0].mistake == "norm after the sum"


def test_wrong_initializations_are_named():
    for mutant in mutants("deep_norm_init"):
        report = check_deep_norm_init(mutant.make())
        assert [failure.mistake for failure in report.failures] == [mutant.mistake], str(report)


def test_what_no_known_mistake_explains():
    report = check_residual(lambda f, norm, alpha: lambda x: norm(x) + 0.1)
    assert report.failures[0].mistake is None
    assert "off by" in report.failures[0].message
    report = check_residual(lambda f, norm, alpha: lambda x: x[..., :2])
    assert "shape" in report.failures[0].message

    def all_equal(block, beta):
        for layer in block.children():
            nn.init.constant_(layer.weight, 0.5)

    report = check_deep_norm_init(all_equal)
    assert report.failures[0].mistake is None
    assert "q_proj 5.66" in report.failures[0].message


def test_the_check_leaves_the_random_state_alone():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    check_deep_norm_init(deep_norm_init_)
    check_residual(PostNorm, like="post_norm")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_unknown_block_is_refused():
    with pytest.raises(ValueError, match="like"):
        check_residual(PostNorm, like="sandwich_norm")


class Block(nn.Module):
    """One residual block in the style of a model's code; `where` says what alpha multiplies."""

    def __init__(self, sublayer, norm, alpha=1.0, where="skip"):
        super().__init__()
        self.sublayer, self.norm, self.dropout = sublayer, norm, nn.Dropout(0.5)
        self.alpha, self.where = alpha, where

    def forward(self, x):
        residual = x
        x = self.dropout(self.sublayer(x))
        if self.where == "skip":
            x = torch.add(x, residual, alpha=self.alpha)
        elif self.where == "branch":
            x = torch.add(residual, x, alpha=self.alpha)
        elif self.where == "sum":
            x = (residual + x).mul(self.alpha)
        return self.norm(x)


@pytest.mark.parametrize(
    ("where", "mistake"),
    [
        ("branch", "alpha on the branch"),
        ("sum", "alpha on the sum"),
        ("nowhere", "no skip"),
    ],
)
def test_blocks_in_another_style(where, mistake):
    def build(sublayer, norm, alpha):
        return Block(sublayer, norm, alpha, where)

    assert check_residual(Block, like="deep_norm").passed
    report = check_residual(build, like="deep_norm")
    assert report.failures[0].mistake == mistake, str(report)


def test_a_block_that_cannot_be_called_is_reported():
    report = check_residual(lambda f, norm, alpha: lambda x: norm(x.mul_(alpha) + f(x)))
    assert not report.passed
    assert "in-place" in report.failures[0].message
