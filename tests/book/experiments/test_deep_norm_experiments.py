"""The experiments of the DeepNorm chapter, and its theorems as properties."""

import math
import statistics
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from normlab.book.experiments.deep_norm import (
    branch_sizes,
    deep_training,
    depth_profiles,
    encoder_decoder,
    encoder_decoder_training,
    equivalent_post_norm,
    first_update,
    plain_stack,
    turning_blocks,
)
from normlab.book.experiments.deep_norm.groups import make_model
from normlab.book.experiments.networks.transformer import make_transformer
from normlab.book.experiments.tables import where
from normlab.layers import LayerNorm, layer_norm
from normlab.residual import DeepNorm, PostNorm, PreNorm, deep_norm_constants

DATA = Path(__file__).parents[3] / "book/_data"
UNTIMED = settings(deadline=None)  # the first comparison of tensors imports for a second
ALPHAS = st.floats(0.1, 20)


def rows(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@UNTIMED
@given(ALPHAS, st.floats(0, 1), st.integers(0, 1000))
def test_a_factor_on_the_input_only_changes_eps(alpha, eps, seed):
    x = rows(seed, 3, 8)
    torch.testing.assert_close(
        layer_norm(alpha * x, (8,), eps=eps), layer_norm(x, (8,), eps=eps / alpha**2)
    )


@UNTIMED
@given(ALPHAS, st.floats(0, 1), st.integers(0, 1000))
def test_deep_norm_is_post_norm_with_a_weaker_branch(alpha, eps, seed):
    branch = nn.Linear(8, 8).double()
    weaker = nn.Linear(8, 8).double()
    with torch.no_grad():
        for a, b in zip(branch.parameters(), weaker.parameters(), strict=True):
            b.copy_(a / alpha)
    x = rows(seed, 3, 8)
    deep = DeepNorm(branch, LayerNorm(8, eps=eps).double(), alpha=alpha)
    post = PostNorm(weaker, LayerNorm(8, eps=eps / alpha**2).double())
    torch.testing.assert_close(deep(x), post(x))


@pytest.mark.parametrize(("optimizer", "power"), [("sgd", 2), ("adam", 1)])
def test_alpha_is_a_learning_rate(optimizer, power):
    for p in (0, 1, 2):
        found = equivalent_post_norm.equivalent_post_norm(optimizer, p, layers=1, steps=5)
        if p == power:
            assert found["gap"] < 1e-12
        else:
            assert found["gap"] > 1e-3


def test_a_post_norm_network_is_made_of_deep_norm_only():
    deep = make_transformer("deep_norm", layers=1, seed=0, width=8, heads=2)
    before = [p.clone() for p in deep.parameters()]
    equivalent_post_norm.convert_to_post_norm(deep)
    assert all(torch.equal(a, b) for a, b in zip(before, deep.parameters(), strict=True))
    post = make_transformer("post_norm", layers=1, seed=0, width=8, heads=2)
    with pytest.raises(TypeError, match="PostNorm"):
        equivalent_post_norm.convert_to_post_norm(post)


@UNTIMED
@given(st.floats(0.2, 5), st.integers(0, 1000), st.floats(1e-3, 1.0))
def test_movement_of_turning_blocks_is_bounded(alpha, seed, scale):
    """Theorem of the chapter, for any two settings of the parameters."""
    stack = turning_blocks.make_stack(6, alpha=alpha, beta=1.0)
    start, other = rows(seed, 6, 2), rows(seed, 6, 2) + scale * rows(seed + 1, 6, 2)
    x = rows(seed + 2, 1, 4)
    outputs = []
    for setting in (start, other):
        with torch.no_grad():
            for block, (v, w) in zip(stack, setting, strict=True):
                block.sublayer.v.copy_(v)
                block.sublayer.w.copy_(w)
        outputs.append(stack(x).detach())
    moved = (outputs[1] - outputs[0]).norm() / outputs[0].norm()
    longest = torch.maximum(start.norm(dim=1), other.norm(dim=1))
    bound = (longest / alpha * (other - start).norm(dim=1)).sum()
    assert moved <= bound * (1 + 1e-9)


def test_steps_of_turning_blocks():
    runs = turning_blocks.turning_blocks.sweep(depth=[5, 20])
    assert len(runs) == 8
    assert ((runs.change > 0) & (runs.change <= runs.bound)).all()
    deep = where(runs, group="deep_norm")
    assert deep.bound.tolist() == pytest.approx([1, 1], rel=1e-4)
    assert deep.change.min() > 0.98
    for run in runs.itertuples():
        assert run.bound == pytest.approx(first_update.update_bound(run.group, run.depth), rel=1e-3)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (6, 6), (24, 6), (500, 500)])
def test_the_constants_meet_the_three_conditions(n, m):
    c = deep_norm_constants(encoder_layers=n, decoder_layers=m)
    assert 3 * m * 2 * c.decoder_beta**2 / c.decoder_alpha**2 == pytest.approx(1)
    through = m * c.decoder_beta**2 / c.decoder_alpha
    encoder = 2 * n * 2 * c.encoder_beta**2 / c.encoder_alpha**2
    assert through * encoder == pytest.approx(1, rel=0.02)  # the paper rounds to two digits
    single = deep_norm_constants(encoder_layers=n)
    assert 2 * n * 2 * single.encoder_beta**2 / single.encoder_alpha**2 == pytest.approx(1)


def test_bound_refuses_a_group_that_it_does_not_know():
    assert first_update.update_bound("post_norm", 8) == 32
    with pytest.raises(ValueError, match="pre_norm"):
        first_update.update_bound("pre_norm", 8)


def test_profiles():
    runs = depth_profiles.depth_profiles.sweep(depth=[3, 60], seed=[0]).set_index(
        ["group", "depth"]
    )
    assert len(runs) == 2 * 5
    short, long = runs.loc["deep_norm", 3], runs.loc["deep_norm", 60]
    assert short.layers == [1, 2, 3]
    assert len(long.layers) == len(long.gradient_norms) == len(long.token_variances) == 41
    assert (long.layers[0], long.layers[-1]) == (1, 60)
    assert long.gradient_spread < 5 < runs.gradient_spread["post_norm", 60]
    assert long.sizes == pytest.approx([1.0] * 41, abs=1e-3)
    grown = runs.sizes["pre_norm", 60]
    assert len(grown) == 41 and grown[-1] > 3 > grown[0]
    assert depth_profiles.depth_profiles("none", 6, 0)["sizes"][-1] > 10


@pytest.mark.parametrize(
    ("group", "other"), [("larger alpha", "beta only"), ("larger beta", "alpha only")]
)
def test_alpha_at_twice_its_exponent_starts_as_beta_and_the_reverse(group, other):
    models = [make_model(g, "small", layers=5, seed=0).double() for g in (group, other)]
    tokens = torch.arange(8).remainder(8)[None]
    one, two = (model(tokens) for model in models)
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)
    weights = [model.matrices("value")[0] for model in models]
    assert not torch.allclose(*weights)


def test_the_pile_is_level_for_beta_alone_and_grows_for_alpha_alone():
    groups = ["post_norm", "alpha only", "beta only", "deep_norm"]
    small = {"depth": [5, 40], "seed": [0], "size": "small"}
    runs = branch_sizes.branch_sizes.sweep(group=groups, **small)
    pile = runs.set_index(["group", "depth"]).pile
    assert pile["beta only", 40] == pytest.approx(pile["beta only", 5], rel=0.3)
    assert pile["alpha only", 40] > 2 * pile["alpha only", 5]
    assert pile["deep_norm", 40] < 0.02 < 20 < pile["post_norm", 40]
    for run in runs.itertuples():
        blocks = 2 * run.depth
        assert run.pile == pytest.approx(blocks * run.branch**2, rel=2e-3)  # both are rounded
        assert 0 <= run.kept <= 1 and 0 <= run.differ <= 1
    level = runs[runs.group.isin(["beta only", "deep_norm"])]
    assert level.kept.tolist() == pytest.approx([math.exp(-p) for p in level.pile], abs=0.05)


def test_other_starts_change_the_weights_that_their_authors_say():
    usual = make_model("pre_norm", "small", layers=8, seed=0)
    gpt, plain, tiny = (
        branch_sizes.make_started(start, "small", layers=8, seed=0)
        for start in ("GPT-2", "T-Fixup", "LayerScale")
    )
    for name in ("query", "value", "attention_out", "feed_forward_in", "feed_forward_out"):
        last = 1 / 4 if name.endswith("out") else 1.0  # 1 / sqrt(2N)
        scaled = 1.0 if name == "query" else 0.67 * 8**-0.25
        w, one, two = (torch.stack([*m.matrices(name)]) for m in (usual, gpt, plain))
        torch.testing.assert_close(one, last * w)
        assert (two.std() / w.std()).item() == pytest.approx(scaled, rel=0.08)
    assert all(isinstance(block.norm, nn.Identity) for block in plain.blocks)
    assert [block.sublayer[1].init for block in tiny.blocks] == [0.1] * 16
    deep = branch_sizes.make_started("LayerScale", "small", layers=25, seed=0)
    assert deep.blocks[0].sublayer[1].init == 1e-6


def test_first_update_is_the_step_that_its_name_says():
    run = first_update.first_update
    found = run("deep_norm", 2, 0)
    changes = {(one["subset"], one["step"]): one["change"] for one in found}
    subsets, steps = run.settings["subsets"], run.settings["steps"]
    assert list(changes) == list(product(subsets, steps))
    # small steps are linear: the parts add up at most
    for step in steps:
        assert changes["all", step] > 0.9 * changes["branch matrices", step]
    # no step is left behind for the next
    (last,) = run("deep_norm", 2, 0, subsets=("all",), steps=("sign",))
    assert last["change"] == changes["all", "sign"]
    # ten times the rate, ten times the movement
    for step, rate in (("gradient", 1e-3), ("sign", 1e-5)):
        again = run("deep_norm", 2, 0, steps=(step,), rate=rate)
        small = [changes[subset, step] for subset in subsets]
        assert [b["change"] for b in again] == pytest.approx(small, rel=0.02)
    # at a rate of 1, normalized vectors do not move farther than they lie apart
    (large,) = run("deep_norm", 2, 0, subsets=("all",), steps=("sign",), rate=1.0)
    assert large["change"] < 3 < changes["all", "sign"]


def test_a_warmup_of_deep_training_makes_its_first_steps_smaller():
    short = {"steps": 8, "stop_above": None}
    whole, slow = (
        deep_training.deep_training(3, "deep_norm", 1e-2, 0, warmup=warmup, **short)["accuracies"]
        for warmup in (0, 50)
    )
    assert whole[0] == slow[0] and whole != slow


@pytest.mark.parametrize("path", sorted(DATA.glob("deep_training*.jsonl")), ids=lambda p: p.stem)
def test_the_records_of_deep_training_agree_with_their_curves(path):
    for o in deep_training.deep_training.read(path).itertuples():
        assert o.final_accuracy == pytest.approx(statistics.fmean(o.accuracies[-10:]))
        above = [step for step, right in enumerate(o.accuracies, 1) if right > 0.9]
        assert o.learned_at == above[0] if above else math.isnan(o.learned_at)


def test_the_plain_stack_is_the_network_of_the_experiments():
    """With the weights of one in the other, both give the same logits."""
    alpha, beta, _, _ = deep_norm_constants(encoder_layers=2)
    plain = plain_stack.Reverser(2, alpha, beta, width=8)
    sizes = {"width": 8, "heads": 4, "expansion": 2, "vocabulary": 6, "length": 6}
    built = make_transformer("deep_norm", layers=2, seed=0, **sizes)
    names = ("query", "key", "value", "output", "up", "down")
    with torch.no_grad():
        built.tokens.weight.copy_(plain.tokens.weight)
        built.positions.weight.copy_(plain.places)
        built.head.load_state_dict(plain.head.state_dict())
        for i, block in enumerate(plain.blocks):
            attention, feed_forward = (b.sublayer for b in built.blocks[2 * i : 2 * i + 2])
            own = (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj)
            for name, layer in zip(names, (*own, feed_forward[0], feed_forward[2]), strict=True):
                layer.load_state_dict(getattr(block, name).state_dict())
    tokens = torch.randint(6, (3, 6))
    torch.testing.assert_close(plain(tokens), built(tokens))


def test_the_loop_teaches_the_plain_stack():
    torch.manual_seed(0)
    alpha, beta, _, _ = deep_norm_constants(encoder_layers=3)
    assert plain_stack.teach(plain_stack.Reverser(3, alpha, beta), lr=1e-2) > 0.9


def test_the_plain_cross_attention_is_the_block_of_the_network():
    """With the weights of one in the other, both give the same; other readings do not."""
    _, _, alpha, beta = deep_norm_constants(encoder_layers=3, decoder_layers=3)
    built = encoder_decoder.EncoderDecoder("deep_norm", 3, seed=0).decoder[1]
    plain = plain_stack.CrossAttentionBlock(16, 2, alpha, beta)
    attention = built.sublayer.attention
    theirs = (*attention.in_proj_weight.chunk(3), attention.out_proj.weight)
    with torch.no_grad():
        for layer, w in zip(
            (plain.query, plain.key, plain.value, plain.output), theirs, strict=True
        ):
            assert (layer.weight.std() / w.std()).item() == pytest.approx(1, rel=0.2)  # the gains
            layer.weight.copy_(w)
    y, memory = rows(0, 2, 5, 16).float(), rows(1, 2, 7, 16).float()
    expected = built(y, memory)
    torch.testing.assert_close(plain(y, memory), expected)
    assert not torch.allclose(plain(y, y), expected, atol=0.01)
    plain.alpha = 1.0
    assert not torch.allclose(plain(y, memory), expected, atol=0.01)


def scaled_matrix(block):
    """One that beta scales."""
    branch = block.sublayer
    if isinstance(branch, encoder_decoder.CrossAttention):
        return branch.attention.out_proj.weight
    return branch[0].weight


def test_an_encoder_decoder_is_built_of_the_blocks_with_their_constants():
    deep, post, pre = (
        encoder_decoder.EncoderDecoder(group, 3, seed=0)
        for group in ("deep_norm", "post_norm", "pre_norm")
    )
    constants = deep_norm_constants(encoder_layers=3, decoder_layers=3)
    assert [len(deep.encoder), len(deep.decoder)] == [6, 9]
    assert {block.alpha for block in deep.encoder} == {constants.encoder_alpha}
    assert {block.alpha for block in deep.decoder} == {constants.decoder_alpha}
    for other, kind in ((post, PostNorm), (pre, PreNorm)):
        assert all(isinstance(block, kind) for block in (*other.encoder, *other.decoder))
        # the same draws, smaller by beta
        for ours, theirs in zip(deep.encoder, other.encoder, strict=True):
            w = scaled_matrix(theirs)
            torch.testing.assert_close(scaled_matrix(ours), constants.encoder_beta * w)
        for ours, theirs in zip(deep.decoder, other.decoder, strict=True):
            w = scaled_matrix(theirs)
            torch.testing.assert_close(scaled_matrix(ours), constants.decoder_beta * w)
    ends = [type(m.encoder_norm) for m in (deep, post, pre)]
    assert ends == [nn.Identity, nn.Identity, nn.LayerNorm]
    assert ends == [type(m.decoder_norm) for m in (deep, post, pre)]


def test_a_decoder_sees_the_source_and_no_later_letter():
    model = encoder_decoder.EncoderDecoder("deep_norm", 2, seed=0)
    source, target = torch.randint(0, 8, (2, 1, 8), generator=torch.Generator().manual_seed(0))
    before = model(source, target)
    later, other = target.clone(), source.clone()
    later[0, 5], other[0, 7] = (target[0, 5] + 1) % 8, (source[0, 7] + 1) % 8
    changed = (model(source, later) - before).abs().amax(-1)[0]
    assert changed[:5].max() < 1e-6 < 1e-4 < changed[5]
    assert (model(other, target) - before).abs().amax(-1)[0].min() > 1e-5


def test_a_decoder_reads_the_answer_one_place_later():
    tokens, answer = next(encoder_decoder_training.answered_batches(6, seed=3))
    source, read = tokens
    assert tokens.shape == (2, 16, 6) and torch.equal(source.flip(1), answer)
    assert (read[:, 0] == 6).all() and torch.equal(read[:, 1:], answer[:, :-1])
    assert source.max() == 5


def test_the_letters_come_through_the_cross_attention(monkeypatch):
    run = encoder_decoder_training.encoder_decoder_training
    point = {"group": "deep_norm", "lr": 6e-3, "seed": 0, "layers": 3}
    assert run(**point)["learned_at"] is not None
    model = encoder_decoder.EncoderDecoder
    features = model.features
    monkeypatch.setattr(model, "features", lambda m, source, read: features(m, 0 * source, read))
    assert run(**point)["final_accuracy"] < 0.3


def test_the_record_of_the_trained_encoder_decoder_agrees_with_its_curves():
    record = DATA / "encoder_decoder_training.jsonl"
    for o in encoder_decoder_training.encoder_decoder_training.read(record).itertuples():
        assert o.final_accuracy == pytest.approx(statistics.fmean(o.accuracies[-10:]), abs=1e-4)
        above = [step for step, right in enumerate(o.accuracies, 1) if right > 0.9]
        assert o.learned_at == above[0] if above else math.isnan(o.learned_at)
