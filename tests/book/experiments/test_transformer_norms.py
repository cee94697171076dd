"""Batch norm over tokens in a small Transformer: what is swapped, leaked and measured."""

from itertools import islice
from pathlib import Path

import pytest
import torch

from normlab.book.experiments.bn_vs_ln.transformer_norms import (
    TokenBatchNorm,
    _losses,
    gaps,
    make_batches,
    make_model,
    make_texts,
    token_fluctuation,
    transformer_norms,
)
from normlab.book.experiments.training import token_loss
from normlab.layers import BatchNorm1d, LayerNorm

SMALL = {"steps": 3, "test_batches": 2, "layers": 1}
DATA = Path(__file__).resolve().parents[3] / "book" / "_data"


def _tokens(shape=(4, 32), seed=0):
    return torch.randint(60, shape, generator=torch.Generator().manual_seed(seed))


def _moved(model, tokens):
    """Positions before the last whose logits change with the last token of the first row."""
    changed = tokens.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 60
    with torch.no_grad():
        return int((model(tokens) - model(changed)).abs().amax(-1)[:, :-1].gt(1e-7).sum())


def test_token_batch_norm_pools_all_tokens_of_each_feature() -> None:
    x = 2 + torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(0))
    y = TokenBatchNorm(5)(x)
    assert y.mean((0, 1)).abs().max() < 1e-6
    assert torch.allclose(y.square().mean((0, 1)), torch.ones(5), atol=1e-3)
    by_position = BatchNorm1d(5)(x)  # reads T as channels
    assert by_position.mean((0, 1)).abs().max() > 0.05


def test_every_layer_norm_is_replaced_and_nothing_else() -> None:
    plain, swapped = (
        make_model(n, "pre_norm", seed=0, layers=1) for n in ("layer_norm", "batch_norm")
    )
    kinds = [sum(isinstance(m, k) for m in swapped.modules()) for k in (LayerNorm, TokenBatchNorm)]
    assert kinds == [0, sum(isinstance(m, LayerNorm) for m in plain.modules())]
    ours = dict(swapped.named_parameters())
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter, ours[name])


def test_only_batch_norm_in_training_reads_the_future() -> None:
    for norm in ("layer_norm", "rms_norm"):
        assert _moved(make_model(norm, "pre_norm", seed=0, layers=1).train(), _tokens()) == 0
    model = make_model("batch_norm", "pre_norm", seed=0, layers=1)
    assert _moved(model.train(), _tokens()) == 4 * 31
    assert _moved(model.eval(), _tokens()) == 0


@pytest.mark.parametrize("correlated", [False, True])
def test_fluctuation_counts_independent_tokens(correlated: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    moments = []
    for _ in range(400):
        x = torch.randn(16 if correlated else 64, 8, generator=generator).double()
        x = x.repeat(4, 1) if correlated else x  # 64 tokens, four of a kind
        mean = x.mean(0)
        moments.append((mean, (x - mean).square().mean(0)))
    f_mean, f_var = token_fluctuation(moments)
    independent = 16 if correlated else 64
    assert f_mean == pytest.approx(independent**-0.5, rel=0.1)
    assert f_var == pytest.approx((2 / independent) ** 0.5, rel=0.1)
    steady, _ = token_fluctuation([moments[0], moments[0]])
    assert steady == 0


def test_adjacent_windows_follow_one_another() -> None:
    train, _ = make_texts()
    x, y = next(make_batches(train, "adjacent", seed=0))
    assert x.shape == (16, 32) and torch.equal(x.flatten()[1:], y.flatten()[:-1])
    x, _ = next(make_batches(train, "mixed", seed=0))
    text = train.tokens.unfold(0, 64, 1)
    assert not (text == x[:2].flatten()).all(-1).any()
    assert next(make_batches(train, "small", seed=0))[0].shape == (2, 32)


def test_held_out_text_is_not_trained_on() -> None:
    train, test = make_texts()
    assert len(train.tokens) + len(test.tokens) == 200_000 and len(test.tokens) == 40_000


def test_measuring_leaves_the_running_moments_alone() -> None:
    model = make_model("batch_norm", "pre_norm", seed=0, layers=1)
    _, test = make_texts()
    batches = list(islice(make_batches(test, "mixed", seed=0), 2))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    by_running, by_batch = _losses(model, batches)
    assert by_batch != by_running
    with torch.no_grad():
        alone = [token_loss(model.eval(), b).item() for b in batches]
    assert by_running == pytest.approx(sum(alone) / 2, rel=1e-12)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("placement", ["pre_norm", "post_norm"])
def test_a_short_run_measures_every_norm(placement) -> None:
    found = transformer_norms.sweep(placement=[placement], lr=[1e-2], seed=[0], **SMALL)
    assert len(found) == 9
    same = found.eval_loss == found.batch_loss
    assert same.tolist() == (found.norm != "batch_norm").tolist()
    assert (found.mean_fluctuation > 0).all()
    assert gaps(found, norm="layer_norm", batches="small") == [0]


def test_moments_of_no_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="moments"):
        token_fluctuation([])


def test_the_record_is_of_this_grid() -> None:
    found = transformer_norms.read(DATA / "transformer_norms.jsonl")
    assert len(found) == 3 * 2 * 3 * 5
    for axis, values in transformer_norms.grid.items():
        assert set(found[axis]) == set(values)
