"""The small GPT of the layer norm chapter, its text, and what else the chapter measures."""

import pytest
import torch
from torch import nn

from normlab.book.experiments.data import numerals
from normlab.book.experiments.layer_norm import tiny_gpt
from normlab.book.experiments.layer_norm.published_classes import (
    AnnotatedLayerNorm,
    EpsOutsideLayerNorm,
)
from normlab.book.experiments.layer_norm.saved_bytes import saved_bytes


def test_numbers_have_their_names():
    named = {n: numerals.name_number(n) for n in range(1000)}
    assert len(set(named.values())) == 1000
    assert named[0] == "zero"
    assert named[99] == "ninety-nine"
    assert named[100] == "one hundred"
    assert named[713] == "seven hundred thirteen"
    assert set(numerals.ALPHABET) == set("".join(named.values())) | set(", ")


@pytest.mark.parametrize("n", [-1, 1000])
def test_other_numbers_have_none(n):
    with pytest.raises(ValueError, match="0 to 999"):
        numerals.name_number(n)


def test_text_and_tokens():
    assert numerals.decode(numerals.counting_text(22)).endswith("twenty, twenty-one, ")
    with pytest.raises(ValueError, match="expected letters"):
        numerals.encode("a")


def test_the_model_does_not_look_ahead():
    model = tiny_gpt.make_model("layer_norm", 2, width=16, length=8, seed=0)
    tokens = numerals.counting_text()[:8][None]
    changed = tokens.clone()
    changed[0, 5] = (tokens[0, 5] + 1) % len(numerals.ALPHABET)
    moved = (model(tokens) != model(changed)).any(-1)[0].tolist()
    assert moved == [False] * 5 + [True] * 3


def test_one_seed_gives_every_norm_the_same_weights():
    models = [tiny_gpt.make_model(n, 1, width=16, length=8, seed=0) for n in tiny_gpt.NORMS]
    for model in models[1:]:
        assert torch.equal(model.head.weight, models[0].head.weight)
    assert [m for m in models[2].modules() if isinstance(m, nn.Identity)]


def test_training_lowers_the_loss_and_an_explosion_counts_as_guessing():
    settings = {"norm": "none", "layers": 2, "seed": 0, "width": 16, "steps": 60}
    low, high = (tiny_gpt.tiny_gpt(lr=lr, **settings)["loss"] for lr in (3e-3, 10.0))
    assert low < 2.3 < high
    assert high == pytest.approx(3.04, abs=0.01)  # log 21


def test_a_warmup_is_not_longer_than_the_training_and_lowers_the_first_rates():
    settings = {"norm": "layer_norm", "layers": 1, "lr": 1e-2, "seed": 0, "width": 16, "steps": 20}
    at_once, slowly = (tiny_gpt.tiny_gpt(**settings, warmup=w)["loss"] for w in (0, 20))
    assert at_once < slowly - 0.05  # half as many full steps
    with pytest.raises(ValueError, match="warmup: got 21"):
        tiny_gpt.tiny_gpt(**settings, warmup=21)


def test_the_stream_is_measured_in_front_of_the_blocks_and_behind_each():
    model = tiny_gpt.make_model("none", 2, width=16, length=8, seed=0)
    tokens = numerals.counting_text()[:8][None]
    sizes = tiny_gpt.stream_sizes(model, tokens)
    behind = model.blocks(model.characters(tokens) + model.places.weight)
    assert len(sizes) == 3
    assert sizes[-1] == pytest.approx(behind.square().mean().sqrt().item())


def test_the_model_writes_on():
    model = tiny_gpt.make_model("layer_norm", 1, width=16, length=8, seed=0)
    start = numerals.encode("one, two, ")
    written = tiny_gpt.write_on(model, start, 5)
    assert torch.equal(written[:10], start)
    assert len(written) == 15


def test_kept_bytes_leave_out_what_was_given():
    x = torch.ones(10)
    assert saved_bytes(torch.mul, x, x.clone()) == 0
    assert saved_bytes(lambda v: v.exp().exp(), x) == 80
    assert saved_bytes(lambda v: v.exp().view(2, 5).square(), x) == 40


def test_the_written_out_classes_have_the_mistakes_that_they_are_shown_for():
    x = 1e-4 * torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    centered = x - x.mean(-1, keepdim=True)
    std = centered.square().mean(-1, keepdim=True).sqrt()
    outside = EpsOutsideLayerNorm(4, eps=1e-4)(x)
    torch.testing.assert_close(outside, centered / (std + 1e-4))
    annotated = AnnotatedLayerNorm(4, eps=1e-4)(x)
    torch.testing.assert_close(annotated, centered / (std * (4 / 3) ** 0.5 + 1e-4))
