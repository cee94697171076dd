"""The small Transformer, its tasks and its training loop."""

import math

import pytest
import torch
from torch import nn

from normlab.book.experiments.data.sequences import (
    load_text,
    sequence_batches,
    text_batches,
)
from normlab.book.experiments.networks.transformer import Attention, make_transformer
from normlab.book.experiments.sequence_training import (
    gradient_norms,
    make_optimizer,
    norm_inputs,
    relative_changes,
    reversal_network,
    sequence_loss,
    token_variance,
    train_on_sequences,
)
from normlab.layers import LayerNorm, RMSNorm
from normlab.residual import DeepNorm, PostNorm, PreNorm, deep_norm_constants
from normlab.schedules import constant

NAMES = ("query", "key", "value", "attention_out", "feed_forward_in", "feed_forward_out")


def make(placement, **changes):
    settings = {"layers": 2, "seed": 0, "width": 8, "heads": 2, "expansion": 2} | changes
    return make_transformer(placement, **settings)


def test_attention_is_torchs():
    torch.manual_seed(0)
    ours = Attention(8, 2).double()
    theirs = nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        parts = (ours.q_proj, ours.k_proj, ours.v_proj)
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0])
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    ours.causal = True
    torch.testing.assert_close(ours(x), theirs(x, x, x, attn_mask=mask, is_causal=True)[0])


@pytest.mark.parametrize("causal", [False, True])
def test_who_sees_whom(causal):
    model = make("pre_norm", causal=causal)
    x = torch.randint(10, (2, 6), generator=torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[0, 3] = (x[0, 3] + 1) % 10
    moved = (model(x) - model(changed)).abs().amax(-1) > 1e-7
    assert not moved[1].any()
    assert moved[0, 3:].all()
    assert moved[0, :3].all() != causal


@pytest.mark.parametrize(
    ("placement", "block", "input_norm", "final_norm"),
    [
        ("post_norm", PostNorm, LayerNorm, nn.Identity),
        ("pre_norm", PreNorm, nn.Identity, LayerNorm),
        ("deep_norm", DeepNorm, LayerNorm, nn.Identity),
    ],
)
def test_placements(placement, block, input_norm, final_norm):
    model = make(placement)
    assert len(model.blocks) == 4
    assert all(type(b) is block for b in model.blocks)
    assert type(model.input_norm) is input_norm
    assert type(model.norm) is final_norm
    norms = [m for m in make(placement, norm="rms_norm").modules() if isinstance(m, RMSNorm)]
    assert len(norms) == 5


def test_without_any_norm():
    assert not any(isinstance(m, LayerNorm) for m in make("none").modules())


def test_deep_norms_two_halves():
    post, deep = make("post_norm"), make("deep_norm")
    constants = deep_norm_constants(encoder_layers=2)
    assert {b.alpha for b in deep.blocks} == {constants.encoder_alpha}
    for name in NAMES:
        gain = 1.0 if name in ("query", "key") else constants.encoder_beta
        for a, b in zip(post.matrices(name), deep.matrices(name), strict=True):
            torch.testing.assert_close(b, gain * a)
    for a, b in zip(make("deep_norm", beta=1.0).parameters(), post.parameters(), strict=True):
        assert torch.equal(a, b)
    half = make("deep_norm", alpha=1.0)
    x = next(sequence_batches(seed=0))[0]
    torch.testing.assert_close(half(x), make("post_norm", beta=constants.encoder_beta)(x))
    torch.testing.assert_close(post.head.weight, deep.head.weight)
    assert all((p == 0).all() for n, p in deep.named_parameters() if n.endswith("proj.bias"))


def test_hidden_states_end_where_the_features_begin():
    model = make("pre_norm")
    x = next(sequence_batches(seed=0))[0]
    states = model.hidden_states(x)
    assert len(states) == 3
    assert torch.equal(model.norm(states[-1]), model.features(x))
    assert torch.equal(model.head(model.features(x)), model(x))


def test_making_a_network_leaves_the_random_state_alone():
    before = torch.random.get_rng_state()
    make("post_norm")
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"layers": 0}, "layers"),
        ({"heads": 3}, "heads"),
        ({"vocabulary": 0}, "vocabulary"),
        ({"norm": "batch_norm"}, "norm"),
        ({"alpha": 2.0}, "alpha"),
        ({"beta": -1.0}, "beta"),
    ],
)
def test_bad_sizes_are_refused(changes, word):
    with pytest.raises(ValueError, match=word):
        make("post_norm", **changes)
    with pytest.raises(ValueError, match="placement"):
        make("sandwich")
    with pytest.raises(ValueError, match="name"):
        make("post_norm").matrices("bias")


def test_tasks():
    x, y = next(sequence_batches(vocabulary=7, length=5, batch_size=3, seed=1))
    assert torch.equal(x, y.flip(1))
    assert x.shape == (3, 5)
    assert x.max() < 7
    x, y = next(sequence_batches("sorting", length=5, seed=1))
    assert (y.diff() >= 0).all()
    assert torch.equal(x.sort(1).values, y)
    stream = sequence_batches("reversal", seed=2)
    assert not torch.equal(next(stream)[0], next(stream)[0])
    again = sequence_batches("reversal", seed=2)
    assert torch.equal(next(again)[0], next(sequence_batches("reversal", seed=2))[0])
    for arguments, word in (({"vocabulary": 1}, "vocabulary"), ({"length": 0}, "length")):
        with pytest.raises(ValueError, match=word):
            sequence_batches(seed=0, **arguments)
    with pytest.raises(ValueError, match="task"):
        sequence_batches("copying", seed=0)


def test_text():
    text = load_text(5000)
    assert text.tokens.shape == (5000,)
    assert int(text.tokens.max()) == text.vocabulary - 1
    shares = text.tokens.bincount().double() / 5000
    assert text.entropy == pytest.approx(-(shares * shares.log()).sum().item())
    x, y = next(text_batches(text, length=9, batch_size=4, seed=0))
    assert torch.equal(x[:, 1:], y[:, :-1])
    assert x.shape == (4, 9)
    with pytest.raises(ValueError, match="characters"):
        load_text(10**9)
    with pytest.raises(ValueError, match="length"):
        text_batches(text, length=5000, seed=0)


class Table(nn.Module):
    """Logits that do not depend on the input."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.0, 1.0, 0.0]))

    def forward(self, x):
        return self.logits.expand(*x.shape, 3)


def test_loss_and_one_step_by_hand():
    model = Table()
    batch = torch.tensor([[0, 1, 2]]), torch.tensor([[1, 1, 0]])
    loss, accuracy = sequence_loss(model, batch)
    p = torch.tensor([0.0, 1.0, 0.0]).softmax(0)
    assert loss.item() == pytest.approx(-(2 * p[1].log() + p[0].log()).item() / 3)
    assert accuracy == pytest.approx(2 / 3)
    gradient = p - torch.tensor([1 / 3, 2 / 3, 0.0])
    before = model.logits.detach().clone()
    curve = train_on_sequences(
        model, iter([batch]), steps=1, optimizer=torch.optim.SGD(model.parameters(), lr=0.5)
    )
    torch.testing.assert_close(model.logits.detach(), before - 0.5 * gradient)
    assert curve.losses == (pytest.approx(loss.item()),)
    assert curve.accuracies == (accuracy,)
    assert curve.lrs == (0.5,)


def test_clipping_and_schedule():
    model = Table()
    batch = torch.tensor([[0, 1, 2]]), torch.tensor([[0, 0, 0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    start = model.logits.detach().clone()
    curve = train_on_sequences(
        model,
        iter([batch] * 3),
        steps=3,
        optimizer=optimizer,
        scheduler=constant(optimizer, warmup_steps=2),
        max_grad_norm=0.01,
    )
    assert curve.lrs == (0.5, 1.0, 1.0)
    assert (model.logits.detach() - start).norm() == pytest.approx(0.025, rel=1e-3)


def test_a_run_that_is_no_longer_finite_stops():
    model = Table()
    with torch.no_grad():
        model.logits.fill_(math.nan)
    batch = torch.tensor([[0]]), torch.tensor([[0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    curve = train_on_sequences(model, iter([batch] * 5), steps=5, optimizer=optimizer)
    assert len(curve.losses) == 1


def test_measures():
    x = torch.randn(3, 5, 8)
    assert token_variance(x[:, :1].expand(3, 5, 8)) == pytest.approx(0, abs=1e-12)
    assert token_variance(x - x.mean(1, keepdim=True)) == pytest.approx(1)
    assert token_variance(7 * x) == pytest.approx(token_variance(x))
    assert relative_changes([torch.tensor([3.0, 4.0])], [torch.tensor([3.0, 5.0])]) == [0.2]
    model, batch = make("post_norm"), next(sequence_batches(seed=0))
    norms = gradient_norms(model, batch)
    assert all(p.grad is None for p in model.parameters())
    sequence_loss(model, batch)[0].backward()
    expected = [w.grad.double().norm().item() for w in model.matrices()]
    assert norms == pytest.approx(expected)


def test_the_inputs_of_norms_are_those_of_their_calls():
    first, second = LayerNorm(4), LayerNorm(4)
    model = nn.Sequential(nn.Linear(4, 4), first, nn.ReLU(), second)
    x = torch.randn(3, 4)
    seen = norm_inputs(model, (second, first), x)
    assert torch.equal(seen[0], model[0](x))
    assert torch.equal(seen[1], first(seen[0]).relu())
    assert not any(x.requires_grad for x in seen)
    with pytest.raises(RuntimeError):
        norm_inputs(model, (first,), x[:, :3])
    assert not first._forward_pre_hooks
    assert not second._forward_pre_hooks


def test_learning_rates_are_checked():
    for lr in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="lr"):
            make_optimizer(Table(), lr=lr)
    with pytest.raises(ValueError, match="optimizer"):
        make_optimizer(Table(), lr=1.0, optimizer="lion")


def test_six_layers_reverse_with_warmup_and_guess_without():
    def train(placement):
        model, batches = reversal_network(placement, seed=0)
        optimizer = make_optimizer(model, lr=1e-2)
        return train_on_sequences(model, batches, steps=60, optimizer=optimizer)

    stuck, deep = train("post_norm"), train("deep_norm")
    assert stuck.final_accuracy() < 0.25
    assert stuck.final_loss() > 2
    assert deep.final_accuracy() > 0.8
    assert deep.first_step_above(0.5) is not None
    assert stuck.first_step_above(0.5) is None


def test_the_rates_are_those_of_the_schedule():
    model, batches = reversal_network("post_norm", layers=1, seed=0)
    optimizer = make_optimizer(model, lr=1e-2)
    schedule = constant(optimizer, warmup_steps=4)
    curve = train_on_sequences(model, batches, steps=4, optimizer=optimizer, scheduler=schedule)
    assert curve.lrs == pytest.approx((2.5e-3, 5e-3, 7.5e-3, 1e-2))
