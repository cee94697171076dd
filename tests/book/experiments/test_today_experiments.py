"""Decoders, the copy task, and the facts that the chapter on today's models rests on."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from pandas.testing import assert_frame_equal

from normlab.book.experiments.networks.decoder import make_block, make_decoder, take_largest_logit
from normlab.book.experiments.today import model_table
from normlab.book.experiments.today.copying import (
    CopyTask,
    copy_batches,
    copy_loss,
    learn_to_copy,
    train_to_copy,
)
from normlab.book.experiments.today.qk_norm import WARMUP, qk_norm
from normlab.book.experiments.today.stream_sizes import stream_sizes

DATA = Path(__file__).resolve().parents[3] / "book" / "_data"
SMALL = {"layers": 2, "width": 16, "heads": 2, "vocabulary": 6, "length": 8, "seed": 0}


@pytest.mark.parametrize("qk", [False, True])
@pytest.mark.parametrize(
    "placement", ["post", "pre", "sandwich", "output", "sub", "mix", "deep_norm"]
)
def test_a_token_sees_itself_and_those_before_it(placement, qk):
    model = make_decoder(placement=placement, qk_norm=qk, **SMALL)
    tokens = torch.arange(6)[None]
    changed = tokens.clone()
    changed[0, 4] = 0
    difference = (model(tokens) - model(changed)).abs().amax(-1)[0]
    assert difference[:4].max() < 1e-6 < 1e-3 < difference[4:].min()


def test_one_seed_gives_every_choice_the_same_matrices():
    first, second = make_decoder(**SMALL), make_decoder(placement="keel", qk_norm=True, **SMALL)
    assert torch.equal(
        first.blocks[2].sublayer.q_proj.weight, second.blocks[2].sublayer.q_proj.weight
    )
    assert torch.equal(first.head.weight, second.head.weight)


def test_sub_norm_puts_norms_before_both_matrices_of_a_branch():
    plain, split = (make_decoder(placement=p, **SMALL).blocks for p in ("pre", "sub"))
    assert torch.equal(plain[2].sublayer.out_proj.weight, split[2].last.weight)
    assert torch.equal(plain[3].sublayer[0].weight, split[3].first[0].weight)
    assert torch.equal(plain[3].sublayer[2].weight, split[3].last.weight)
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    hidden = (plain[3].norm(x) @ split[3].first[0].weight.T).relu()  # (N, T, 4 D)
    middle = hidden / hidden.square().mean(-1, keepdim=True).sqrt()
    right = x + middle @ split[3].last.weight.T
    torch.testing.assert_close(split[3](x), right, rtol=1e-4, atol=1e-4)
    # the branch is as large for ten times the matrices in front of its inner norm
    with torch.no_grad():
        before = split[2](x)
        split[2].first.v_proj.weight.mul_(10)
        torch.testing.assert_close(split[2](x), before, rtol=1e-3, atol=1e-4)
        assert (plain[2](x) - before).abs().max() > 0.1


def test_logits_are_seen():
    model = make_decoder(**SMALL)
    assert take_largest_logit(model) == 0
    model(torch.zeros(1, 3, dtype=torch.long))
    small = take_largest_logit(model)
    with torch.no_grad():
        model.blocks[0].sublayer.q_proj.weight.mul_(100)
    model(torch.zeros(1, 3, dtype=torch.long))
    assert take_largest_logit(model) > 10 * small > 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: make_decoder(placement="before", **SMALL), "placement.*'sandwich'"),
        (lambda: make_decoder(norm="batch_norm", **SMALL), "norm.*'dyt'"),
        (lambda: make_decoder(**{**SMALL, "heads": 3}), "heads.*divisor"),
        (lambda: make_block("", None, None, layer=1, layers=1), "placement"),
        (
            lambda: make_block("sub", torch.nn.ReLU(), torch.nn.RMSNorm, layer=1, layers=1),
            "sublayer: got ReLU; sub-LN splits",
        ),
        (lambda: model_table.make_model("gpt-5"), "model: .*llama"),
    ],
)
def test_errors_name_the_setting(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_half_of_the_text_can_be_known():
    batches = copy_batches(symbols=50, length=5, batch_size=3, seed=0)
    tokens, following = next(batches)
    assert tokens.shape == following.shape == (3, 9)
    assert torch.equal(following[:, 4:], torch.cat([tokens[:, :1], following[:, :4]], 1))
    assert not torch.equal(next(batches)[0], tokens)


def test_the_loss_is_of_that_half():
    class Perfect(torch.nn.Module):
        def forward(self, tokens):  # what was said five tokens ago follows
            wanted = torch.cat([tokens[:, :4] * 0, tokens[:, :5]], 1)
            return 50.0 * torch.nn.functional.one_hot(wanted, 50).float()

    batch = next(copy_batches(symbols=50, length=5, batch_size=3, seed=0))
    assert copy_loss(Perfect(), batch, length=5) < 1e-6
    assert copy_loss(Perfect(), batch, length=1) > 5


SMALL_TASK = CopyTask(symbols=4, length=4, layers=1)


def test_a_rate_that_destroys_counts_as_guessing():
    loss, _ = learn_to_copy(SMALL_TASK, lr=1e3, steps=30, seed=0)
    assert loss == pytest.approx(math.log(4), rel=1e-3)


def test_the_control_of_qk_norm_has_a_warmup_and_no_norm():
    """Where the warmup has not ended, the weights hardly moved, and guessing remains."""
    found = [qk_norm(g, lr=0.1, seed=0, steps=3) for g in ("none", "qk_norm", "warmup")]
    assert len({measures["largest_logit"] for measures in found}) == 3
    learn = partial(learn_to_copy, SMALL_TASK, lr=1e-2, steps=60, seed=0)
    (without, model), (warmed, later) = learn(), learn(warmup=1000 * WARMUP)
    assert without < 1.1 < 1.3 < warmed
    assert take_largest_logit(later) < 0.9 * take_largest_logit(model)


@pytest.mark.parametrize("choice", [{"placement": "pre"}, {"norm": "dyt"}, {"norm": "none"}])
def test_a_few_steps_lower_the_loss(choice):
    losses = [
        learn_to_copy(SMALL_TASK, lr=1e-2, steps=60, seed=0, warmup=w, **choice)[0] for w in (0, 5)
    ]
    assert len(set(losses)) == 2
    assert max(losses) < 1.3


def test_warmup_starts_at_a_part_of_the_rate():
    """One update: with a warmup of 100 the weights move a hundredth as far."""
    moved = []
    for warmup in (0, 100):
        model = make_decoder(**SMALL)
        before = model.head.weight.detach().clone()
        adam = torch.optim.Adam(model.parameters(), lr=1e-2)
        task = CopyTask(symbols=6, length=4, batch_size=2)
        train_to_copy(model, adam, task, 1, seed=0, warmup=warmup)
        moved.append((model.head.weight - before).abs().max().item())
    assert moved[0] == pytest.approx(100 * moved[1], rel=1e-3)


# --- the stream before training, 64 layers


@pytest.fixture(scope="module")
def sizes():
    return stream_sizes.sweep(seed=[0]).set_index(["placement", "gain"]).sizes


@pytest.mark.parametrize("placement", ["sandwich", "output"])
def test_a_norm_behind_the_branch_forgets_the_scale_of_the_weights(sizes, placement):
    assert sizes[placement, 1.0] == pytest.approx(sizes[placement, 2.0], rel=1e-5)
    assert sizes[placement, 1.0][-1] == pytest.approx(65, rel=0.15)


def test_pre_norm_grows_with_the_fourth_power_of_the_gain(sizes):
    """Two matrices of twice the size: the branch is four times, its square sixteen times."""
    once, twice = sizes["pre", 1.0], sizes["pre", 2.0]
    assert (twice[-1] - 1) / (once[-1] - 1) == pytest.approx(16, abs=1)
    assert 0.8 < (once[-1] - once[0]) / 63 < 1.2


def test_layer_norm_scaling_turns_the_growth_into_a_logarithm(sizes):
    harmonic = 1 + sum(1 / layer for layer in range(1, 65))
    assert sizes["scaled_pre", 1.0][-1] == pytest.approx(harmonic, rel=0.2)
    assert sizes["scaled_pre", 1.0][-1] < 7


@pytest.mark.parametrize("placement", ["post", "keel"])
def test_a_norm_on_the_stream_keeps_its_size(sizes, placement):
    assert sizes[placement, 2.0] == pytest.approx([1.0] * 64, rel=1e-3)


# --- the table of models


def test_the_table_is_what_the_classes_do():
    """Every row of the record, measured again on the pinned transformers."""
    pytest.importorskip("transformers", reason="it is not among what the suite needs")
    recorded = model_table.model_table.read(DATA / "model_table.jsonl")
    assert recorded.model.tolist() == list(model_table.MODELS)
    assert_frame_equal(model_table.model_table.sweep(), recorded)


def test_marks_of_the_picture():
    def row(**fields):
        given = {"placement": "pre", "qk_norm": "none", "weight": "w"} | fields
        return type("Row", (), given)

    assert model_table.marks(row()) == ("dot", "", "", "")
    assert model_table.marks(row(placement="output", weight="1 + w")) == ("", "dot", "", "dot")
    assert model_table.marks(row(placement="sandwich", qk_norm="latent")) == ("dot", "dot", "", "")
    bare = row(placement="pre, parallel", weight="none", qk_norm="per head, no weight")
    assert model_table.marks(bare) == ("ring", "", "ring", "")


def make_layer(*, before: bool, behind: bool, parallel: bool = False) -> torch.nn.Module:
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn, self.mlp = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
            self.norms = torch.nn.ModuleList()
            for name in ("norm_1", "norm_2", "norm_3", "norm_4"):
                setattr(self, name, torch.nn.RMSNorm(6))

        def forward(self, x):
            if parallel:
                h = self.norm_1(x)
                return x + self.self_attn(h) + self.mlp(h)
            for branch, first, last in (
                (self.self_attn, self.norm_1, self.norm_2),
                (self.mlp, self.norm_3, self.norm_4),
            ):
                h = branch(first(x) if before else x)
                x = x + h if behind is False else x + last(h)
            return x if before or behind else self.norm_1(x)

    return Layer()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ({"before": True, "behind": False}, "pre"),
        ({"before": True, "behind": True}, "sandwich"),
        ({"before": False, "behind": True}, "output"),
        ({"before": False, "behind": False}, "post"),
        ({"before": True, "behind": False, "parallel": True}, "pre, parallel"),
    ],
)
def test_the_placement_is_read_from_what_the_norms_read(kind, expected):
    layer = make_layer(**kind)
    with model_table.record_calls(layer) as calls:
        layer(torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0)))
    assert model_table.find_placement(calls) == expected
