"""The key of each variant is what torch or the package computes, and rounding it does no harm."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from normlab import layers
from normlab.book.exercises import variants
from normlab.book.exercises.variants.variant import Variant
from normlab.norms import label_cells
from normlab.schedules import inverse_square_root, transformer_peak

BOOK = Path(__file__).resolve().parents[3] / "book"
SEEDS = range(12)
FORMULAS = variants.FORMULAS | variants.LAYERS


def by_motivation(a, b, c):
    covariance = np.array([[a, c], [c, b]])
    scale = np.diag([a**-0.5, b**-0.5])
    return tuple(np.linalg.cond(matrix) for matrix in (covariance, scale @ covariance @ scale))


def by_batch_norm(batch, momentum, steps):
    norm = torch.nn.BatchNorm1d(1, momentum=momentum).double()
    for _ in range(steps):
        norm(torch.tensor(batch, dtype=torch.float64)[:, None])
    return norm.running_mean.item(), norm.running_var.item()


def by_invariance(norm, gradient, rate, factor):
    """A loss whose gradient at weights of this norm has the norm that is asked for."""
    g = torch.Generator().manual_seed(norm)
    direction, target = torch.randn(2, 6, generator=g, dtype=torch.float64)
    weight = direction / direction.norm() * norm

    def gradient_at(w, scale=1.0):
        leaf = w.clone().requires_grad_()
        loss = scale * (leaf / leaf.norm() @ target)
        return torch.autograd.grad(loss, leaf)[0]

    scale = gradient / gradient_at(weight).norm()
    stepped = weight - rate * gradient_at(weight, scale)
    return stepped.norm().item(), gradient_at(factor * weight, scale).norm().item()


def by_rms_norm(x, dy):
    x, dy = (torch.tensor(v, dtype=torch.float64) for v in (x, dy))
    x.requires_grad_()
    y = functional.rms_norm(x, (3,), eps=0.0)
    return tuple(torch.autograd.grad(y, x, dy)[0].tolist())


def by_warmup(width, warmup, step):
    peak = transformer_peak(width, warmup)
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    (share,) = inverse_square_root(sgd, warmup_steps=warmup).lr_lambdas

    def rate(update):
        return peak * share(update - 1)

    later = warmup**3 / step**2
    # between the two whole steps around it the rate passes the one of `step`
    assert rate(math.ceil(later)) <= rate(step) * (1 + 1e-9)
    assert rate(math.floor(later)) >= rate(step) * (1 - 1e-9)
    return rate(step) / rate(warmup), later, rate(warmup)


def by_numerics(std, eps):
    x = torch.tensor([-std, std], dtype=torch.float64)
    inside = functional.layer_norm(x, (2,), eps=eps).std(correction=0).item()
    return inside, (x / (x.std(correction=0) + eps)).std(correction=0).item()


def by_family(x, batch, running, r_max, d_max):
    """The layer on two values with these moments: at their mean, and how steep it is."""
    norm = layers.BatchRenorm1d(1, eps=1e-12, r_max=r_max, d_max=d_max, affine=False).double()
    norm.running_mean.fill_(running[0])
    norm.running_var.fill_(running[1] ** 2)
    pair = torch.tensor([[batch[0] - batch[1]], [batch[0] + batch[1]]], dtype=torch.float64)
    low, high = norm.train()(pair).flatten().tolist()
    d, r = (low + high) / 2, (high - low) / 2
    return r, d, d + r * (x - batch[0]) / batch[1]


def by_pytorch_source(shape, normalized):
    x = torch.zeros(shape)
    _, mean, rstd = torch.native_layer_norm(x, normalized, None, None, 1e-5)
    return mean.numel(), x.numel() // mean.numel(), mean.numel() + rstd.numel()


def by_bn_vs_ln(shape, groups):
    x = torch.zeros(shape)
    means = [
        label_cells("batch_norm", shape).max() + 1,
        label_cells("layer_norm", shape, normalized_ndim=3).max() + 1,
        label_cells("group_norm", shape, num_groups=groups).max() + 1,
        label_cells("instance_norm", shape).max() + 1,
    ]
    modules = (layers.BatchNorm2d(shape[1]), layers.LayerNorm(x.shape[1:]))
    return (*means, *(sum(p.numel() for p in m.parameters()) for m in modules))


def by_paper_experiments(before, after):
    return math.exp(-after) / math.exp(-before), math.log2(math.exp(-after) / math.exp(-before))


def by_debugging(momentum, parts):
    (small, _), _ = FORMULAS["debugging"].answers(momentum, parts)
    assert (1 - small) ** parts == pytest.approx(1 - momentum)
    return small, math.log(1 / 20, 1 - small)


def by_many_devices(counts, means, variances):
    """A set of values with these moments on each device, and numpy over all of them."""
    values = []
    for count, mean, var in zip(counts, means, variances, strict=True):
        spread = np.linspace(-1, 1, count)
        values.append(mean + spread * (var / np.mean(spread**2)) ** 0.5)
    return np.concatenate(values).mean(), np.concatenate(values).var()


def by_fast_norms(rows, features, width, speed):
    """Tensors of that size, counted in bytes: x and y; x, dy and dx."""
    dtype = {2: torch.bfloat16, 4: torch.float32}[width]
    moved = sum(torch.empty(rows, features, dtype=dtype, device="meta").nbytes for _ in range(5))
    return moved / 1e6, 1e3 * moved / (speed * 1e9)


def by_today(tokens, size, gain, block):
    """A softmax over the sharpest logits, and a sum of branches one by one."""
    logits = torch.full((tokens,), -(size**0.5), dtype=torch.float64)
    logits[0] = size**0.5
    square = 1.0
    for _ in range(block):
        square += (gain * gain) ** 2
    return logits.softmax(0)[0].item(), square


OTHER_WAYS = {name: globals()[f"by_{name}"] for name in FORMULAS}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("chapter", FORMULAS)
def test_the_key_is_what_another_way_gives(chapter, seed):
    variant = FORMULAS[chapter]
    other = OTHER_WAYS[chapter](**variant.numbers(seed))
    assert variants.solve(chapter, seed) == pytest.approx(other, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("chapter", FORMULAS)
def test_each_mistake_shows_as_itself_when_rounded(chapter):
    for seed in SEEDS:
        variant = FORMULAS[chapter]

        def graded(numbers, seed=seed):
            rounded = tuple(float(f"{v:.3g}") if v % 1 else v for v in numbers)
            return variants.check_answer(lambda: rounded, chapter=chapter, seed=seed)

        right, wrong = variant.answers(**variant.numbers(seed))
        assert graded(right) == "right"
        for sentence, numbers in wrong.items():
            assert graded(numbers) == f"wrong: {sentence}"


@pytest.mark.parametrize("chapter", variants.CHAPTERS)
def test_seeds_ask_different_things_and_the_key_is_not_in_the_question(chapter):
    asked = [variants.ask(chapter, seed) for seed in SEEDS]
    assert len(set(asked)) == len(asked)
    assert variants.ask(chapter, 5) == asked[5]
    assert all("{" not in text and text.endswith((".", "?")) for text in asked)
    keys = {variants.solve(chapter, seed) for seed in range(40)}
    assert len(keys) > (len(variants.WRONG_LAYERS) - 1 if chapter == "checks" else 20)


def test_every_chapter_with_exercises_has_one():
    pages = {path.stem: path.read_text(encoding="utf-8") for path in BOOK.glob("*.ipynb")}
    asking = {
        name.removesuffix("_further")
        for name, text in pages.items()
        if re.search(r"\{exercise(?:-start)?\}", text)
    }
    without = asking - {"interview"} - set(variants.CHAPTERS)
    assert not without, (
        f"{sorted(without)}: exercises, and no question with a seed; add one to FORMULAS or LAYERS "
        "in normlab/book/exercises/variants, its other way to this file, and a row to teaching.md"
    )
    assert set(variants.CHAPTERS) <= set(pages)
    assert all(f"variants.{name}" in pages["interview"] for name in ("make_table", "make_depths"))


def test_the_page_on_teaching_lists_them_all():
    teaching = (BOOK / "teaching.md").read_text(encoding="utf-8")
    table = teaching.partition("(teaching-variants)=")[2].partition("\n(")[0]
    listed = re.findall(r"^\| \{doc\}`(\w+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(variants.CHAPTERS)


def test_no_notebook_names_an_answer():
    for path in [*BOOK.glob("*.ipynb"), *BOOK.glob("solutions/*.ipynb")]:
        assert "variants.solve" not in path.read_text(encoding="utf-8"), path.name


def test_answers_that_are_none_and_chapters_that_have_none():
    said = variants.check_answer(lambda: None, chapter="numerics", seed=1)
    assert said == "not answered yet"
    assert "expected a tuple of 2" in variants.check_answer(lambda: 1.0, chapter="numerics", seed=1)
    for call in (variants.ask, variants.solve):
        with pytest.raises(ValueError, match="chapter: got 'claims'; expected one of motivation"):
            call("claims", 1)


def test_numbers_are_drawn_until_the_answers_differ():
    variant = Variant(
        question="{n}?",
        draw=lambda rng: {"n": int(rng.integers(1, 4))},
        answers=lambda n: ((n**2,), {"that is twice the number": (2 * n,)}),
    )
    assert {variant.numbers(seed)["n"] for seed in range(30)} == {1, 3}
    with pytest.raises(ValueError, match="leave out the mistake that is none"):
        replace(variant, answers=lambda n: ((n**2,), {"the square": (n * n,)})).numbers(0)
