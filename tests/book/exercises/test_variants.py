"""Every seed gives a question whose right answer passes and whose classic mistakes are named."""

import functools

import pytest
import torch
from torch.nn import functional

from normlab.book.exercises import variants
from normlab.book.exercises.variants import by_hand
from normlab.residual import deep_norm_constants

SEEDS = range(30)


def norm(x, correction=0):
    return ((x - x.mean()) / x.std(correction=correction))[0].item()


def answers(seed, correction=0):
    table = torch.tensor(variants.make_table(seed), dtype=torch.float64)
    row, column = table[0], table[:, 0]
    rms = (row / row.square().mean().sqrt())[0].item()
    return norm(row, correction), norm(column, correction), rms


def right_constants(seed):
    n, m = variants.make_depths(seed)
    return tuple(deep_norm_constants(encoder_layers=n, decoder_layers=m))


# of the variant with seed 3
RIGHT = {
    "check_by_hand": lambda: answers(3),
    "check_constants": lambda: right_constants(3),
    "check_diagnosis": lambda: variants.solve("checks", 3),
} | {f"check_answer of {c}": functools.partial(variants.solve, c, 3) for c in variants.CHAPTERS}


@pytest.mark.parametrize("seed", SEEDS)
def test_by_hand(seed):
    layer, batch, rms = (round(v, 2) for v in answers(seed))

    def grade(*values):
        return variants.check_by_hand(lambda: values, seed=seed)

    assert grade(layer, batch, rms) == "right"
    exact = answers(seed)
    assert grade(*(int(100 * v) / 100 for v in exact)) == "right"
    assert grade(exact[0] + 0.015, *exact[1:]).startswith("wrong: value 1 of 3 is ")
    assert "the row" in grade(batch, layer, rms)
    assert "subtracts nothing" in grade(layer, batch, layer)
    bessel = [round(v, 2) for v in answers(seed, correction=1)]
    assert "n, not n - 1" in grade(*bessel)
    assert variants.check_by_hand(lambda: None, seed=seed) == "not answered yet"


def test_one_decimal_is_not_two():
    layer, batch, rms = (round(v, 1) for v in answers(2026))
    said = variants.check_by_hand(lambda: (layer, batch, rms), seed=2026)
    assert "two decimals are asked for" in said


def test_no_mistake_is_taken_for_another():
    for seed in range(40):
        table = torch.tensor(variants.make_table(seed), dtype=torch.float64)
        values = by_hand._values(table.numpy())
        assert tuple(values[""]) == pytest.approx(answers(seed))
        for mistake, value in values.items():
            verdict = variants.check_by_hand(
                lambda v=value: tuple(round(x, 2) for x in v), seed=seed
            )
            assert verdict == (f"wrong: {mistake}" if mistake else "right"), seed


@pytest.mark.parametrize("seed", SEEDS)
def test_constants(seed):
    n, m = variants.make_depths(seed)
    right = right_constants(seed)

    def grade(values):
        return variants.check_constants(lambda: values, seed=seed)

    assert grade(tuple(round(v, 3) for v in right)) == "right"
    assert "exchanged" in grade(right[2:] + right[:2])
    alone = ((2 * n) ** 0.25, (8 * n) ** -0.25, (2 * m) ** 0.25, (8 * m) ** -0.25)
    assert "one stack" in grade(alone)
    assert grade(None) == "not answered yet"


@pytest.mark.parametrize("seed", range(12))
def test_the_wrong_layer_is_wrong_where_it_is_said_to_be(seed):
    verdicts = {
        n: variants.check_diagnosis(lambda n=n: n, seed=seed) for n in variants.WRONG_LAYERS
    }
    (mistake,) = [name for name, verdict in verdicts.items() if verdict == "right"]
    assert all(v.startswith("wrong: ") for n, v in verdicts.items() if n != mistake)
    layer = variants.make_wrong_layer(seed)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, generator=g, dtype=torch.float64) * 1e-2 + 0.1
    weight = torch.randn(4, generator=g, dtype=torch.float64)
    dy = torch.randn(3, 4, generator=g, dtype=torch.float64)
    results = []
    for f in (layer, functional.layer_norm):
        leaf = x.clone().requires_grad_()
        y = f(leaf, (4,), weight, None, 1e-5)
        y.backward(dy)
        results.append((y.detach(), leaf.grad))
    (y, dx), (right_y, right_dx) = results
    same = torch.allclose(y, right_y, rtol=1e-4, atol=1e-6)
    assert same == (variants.WRONG_LAYERS[mistake] == "gradients")
    assert not torch.allclose(dx, right_dx, rtol=1e-3)


def test_a_mistake_in_gradients_is_told_from_another_one():
    seed = next(s for s in range(60) if variants.solve("checks", s) == "weight_after_projection")
    said = variants.check_diagnosis(lambda: "detached_statistics", seed=seed)
    assert "that mistake gives other gradients" in said
    assert "look at the gradients" in variants.check_diagnosis(lambda: "wrong_axis", seed=seed)
    seed = next(s for s in range(60) if variants.solve("checks", s) == "wrong_axis")
    said = variants.check_diagnosis(lambda: "detached_statistics", seed=seed)
    assert "outputs already differ" in said
    said = variants.check_diagnosis(lambda: "eps_outside", seed=seed)
    assert "shows on small inputs; this layer differs from torch on a second row" in said


def test_seeds_differ_and_answers_that_are_none():
    assert len({str(variants.make_table(s)) for s in SEEDS}) == len(SEEDS)
    assert len({variants.make_depths(s) for s in SEEDS}) > 25
    drawn = {variants.solve("checks", s) for s in range(60)}
    assert drawn == set(variants.WRONG_LAYERS)
    assert variants.check_diagnosis(lambda: None, seed=0) == "not answered yet"
    assert "expected one of" in variants.check_diagnosis(lambda: "eps", seed=0)
    assert "ZeroDivisionError" in variants.check_diagnosis(lambda: 1 / 0, seed=0)


def test_the_mistake_cannot_be_read_off():
    assert variants.make_wrong_layer(0).__name__ == "layer"
