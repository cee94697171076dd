"""Norms that become constants, factors that decay, and widths that grow."""

from pathlib import Path

import pytest
import torch

from normlab.book.experiments.networks.decoder import make_decoder, take_largest_logit
from normlab.book.experiments.today import coordinate_check, deleting_norms, gain_decay
from normlab.layers import RMSNorm, ZeroCenteredRMSNorm

DATA = Path(__file__).resolve().parents[3] / "book" / "_data"
SIZES = {"layers": 1, "width": 8, "heads": 2, "vocabulary": 6, "length": 6, "seed": 0}


def make_batches(count=3):
    generator = torch.Generator().manual_seed(0)
    draws = (torch.randint(6, (4, 6), generator=generator) for _ in range(count))
    return [(tokens, tokens.roll(1, 1)) for tokens in draws]


# --- deleting


def test_the_divisor_is_the_mean_root_mean_square():
    model, batches = make_decoder(**SIZES), make_batches()
    x = torch.cat([model.tokens(t) + model.positions.weight for t, _ in batches])
    wanted = x.square().mean(-1).sqrt().mean().item()
    site = deleting_norms.find_sites(model)[0]
    assert deleting_norms.measure_divisor(model, site, batches) == pytest.approx(wanted, rel=1e-6)


def test_a_frozen_norm_has_no_statistics():
    """It is linear, keeps the weight as a parameter, and agrees where the size is the mean."""
    model, batches = make_decoder(**SIZES), make_batches()
    with torch.no_grad():
        model.blocks[0].norm.weight.uniform_(0.5, 2.0, generator=torch.Generator().manual_seed(1))
    weight = model.blocks[0].norm.weight
    deleting_norms.freeze_norm_(model, "blocks.0.norm", batches)
    frozen = model.blocks[0].norm
    assert frozen.weight is weight and any(p is weight for p in model.parameters())
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(frozen(3 * x), 3 * frozen(x))
    x = x / x.square().mean(-1, keepdim=True).sqrt() * frozen.divisor
    norm = RMSNorm(8, eps=0.0)
    norm.weight = weight
    assert torch.allclose(frozen(x), norm(x), atol=1e-6)


def test_all_norms_can_be_deleted():
    model, batches = make_decoder(**SIZES), make_batches()
    for site in deleting_norms.find_sites(model):
        deleting_norms.freeze_norm_(model, site, batches)
    assert not deleting_norms.find_sites(model)
    assert 1 < deleting_norms.measure_loss(model, batches) < 4


def test_a_small_run_deletes_one_after_another():
    found = deleting_norms.deleting_norms(seed=0, layers=1, steps=5, measured=2)
    assert found["sites"] == ["blocks.0.norm", "blocks.1.norm", "norm"]
    assert len(found["alone"]) == len(found["together"][0]) == len(found["kept"][1]) == 3
    assert found["together"][0][0] == found["alone"][0] != found["intact"]
    assert set(found["kept"][0]) == {found["intact"]} != set(found["kept"][1])


# --- decay


def test_only_weights_of_norms_are_told_apart():
    model = make_decoder(norm="zero_centered", qk_norm=True, **SIZES)
    of_norms, others = gain_decay.split_parameters(model)
    assert {id(p) for p in of_norms} & {id(p) for p in others} == set()
    assert len(of_norms) + len(others) == len(list(model.parameters()))
    assert all(p.dim() == 1 for p in of_norms) and any(p.dim() == 1 for p in others)


@pytest.mark.parametrize("norm", ["rms_norm", "zero_centered"])
def test_the_factor_is_what_multiplies(norm):
    model = make_decoder(norm=norm, **SIZES)
    assert torch.equal(gain_decay.read_factors(model), torch.ones(3 * 8))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, RMSNorm | ZeroCenteredRMSNorm):
                module.weight.add_(0.5)
    assert torch.equal(gain_decay.read_factors(model), torch.full((3 * 8,), 1.5))


def test_decay_pulls_the_stored_weight_to_zero():
    """One tenth is left of what is stored, whatever the gradient did meanwhile."""
    table = gain_decay.gain_decay.sweep(decay=[0.0, 9.0], seed=[0], steps=25)
    found = table.set_index(["norm", "decay"]).factor
    assert found["rms_norm", 9.0] < 0.3 < 0.8 < found["rms_norm", 0.0]
    assert found["zero_centered", 9.0] == pytest.approx(1.0, abs=0.05)


# --- widths


def test_the_two_scalings_are_one_network_at_the_first_width():
    one, other = (
        coordinate_check.coordinate_check(s, width=64, seed=0, steps=2) for s in ("standard", "muP")
    )
    assert one == other


def test_rates_of_matrices_fall_with_the_width_and_others_do_not():
    model = make_decoder(**SIZES)
    matrices, rest = coordinate_check.parameter_groups(model, lr=0.1, factor=4.0)
    assert (matrices["lr"], rest["lr"]) == (0.025, 0.1)
    assert any(p is model.head.weight for p in matrices["params"])
    assert any(p is model.norm.weight for p in rest["params"])
    assert any(p is model.tokens.weight for p in rest["params"])
    assert len(matrices["params"]) + len(rest["params"]) == len(list(model.parameters()))


def test_attention_divides_by_the_size_of_the_head():
    """Four times the width halves logits and output matrix, beyond what the root does."""
    model, tokens = make_decoder(**SIZES), torch.arange(6)[None]
    model(tokens)
    before, head = take_largest_logit(model), model.head.weight.clone()
    coordinate_check.scale_widths_(model, 4.0)
    model.blocks[0].sublayer.largest_logit = 0.0
    model(tokens)
    assert take_largest_logit(model) == pytest.approx(before / 2, rel=1e-5)
    assert torch.equal(model.head.weight, head / 2)


def test_the_record_shows_growth_in_one_scaling_only():
    found = coordinate_check.coordinate_check.read(DATA / "coordinate_check.jsonl")
    ends = found.groupby(["scaling", "width"])[["stream", "output"]].agg(["min", "max"])
    for measure in ("stream", "output"):
        least, most = ends[measure]["min"], ends[measure]["max"]
        assert least["standard", 1024] > 5 * most["standard", 64]
        assert most["muP", 1024] < most["muP", 64]


def test_a_width_has_to_be_a_multiple_of_the_heads():
    with pytest.raises(ValueError, match="width: got 65; expected a multiple of 2"):
        coordinate_check.coordinate_check("muP", width=65, seed=0)
