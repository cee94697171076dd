"""Norms that become constants, factors that decay, and widths that grow."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from normlab.experiments.networks.decoder import make_decoder
from normlab.experiments.today import coordinate_check, deleting_norms, gain_decay
from normlab.layers import RMSNorm, ZeroCenteredRMSNorm

DATA = Path(__file__).resolve().parents[2] / "book" / "_data"
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
    config = deleting_norms.Config(
        seeds=(0,), layers=1, width=8, heads=2, characters=3000, length=8, steps=5, measured=2
    )
    (outcome,) = deleting_norms.run(config).outcomes
    assert outcome.sites == ("blocks.0.norm", "blocks.1.norm", "norm")
    assert len(outcome.alone) == len(outcome.together[0]) == len(outcome.kept[1]) == 3
    assert outcome.together[0][0] == outcome.alone[0] != outcome.intact
    assert set(outcome.kept[0]) == {outcome.intact} != set(outcome.kept[1])


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
    changes = {"layers": 1, "width": 8, "symbols": 4, "length": 2, "batch_size": 2, "steps": 25}
    config = gain_decay.Config(decays=(0.0, 9.0), seeds=(0,), **changes)
    found = {(o.norm, o.decay): o.factor for o in gain_decay.run(config).outcomes}
    assert found["rms_norm", 9.0] < 0.3 < 0.8 < found["rms_norm", 0.0]
    assert found["zero_centered", 9.0] == pytest.approx(1.0, abs=0.05)


# --- widths


def test_the_two_scalings_are_one_network_at_the_first_width():
    config = coordinate_check.Config(widths=(16,), seeds=(0,), steps=2)
    one, other = coordinate_check.run(config).outcomes
    assert (one.stream, one.output) == (other.stream, other.output)


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
    before, head = model.largest_logit, model.head.weight.clone()
    coordinate_check.scale_widths_(model, 4.0)
    model.blocks[0].sublayer.largest_logit = 0.0
    model(tokens)
    assert model.largest_logit == pytest.approx(before / 2, rel=1e-5)
    assert torch.equal(model.head.weight, head / 2)


def test_the_record_shows_growth_in_one_scaling_only():
    record = json.loads((DATA / "coordinate_check.json").read_text(encoding="utf-8"))
    rows = record["result"]["outcomes"]
    for measure in ("stream", "output"):
        least = {
            (r["scaling"], r["width"]): [
                o[measure] for o in rows if (o["scaling"], o["width"]) == (r["scaling"], r["width"])
            ]
            for r in rows
        }
        assert min(least["standard", 1024]) > 5 * max(least["standard", 64])
        assert max(least["muP", 1024]) < max(least["muP", 64])


def test_errors_name_the_setting():
    for module in (deleting_norms, gain_decay):
        with pytest.raises(ValueError, match="heads"):
            module.Config(heads=5)
    with pytest.raises(ValueError, match="heads"):
        coordinate_check.Config(heads=5)
    assert isinstance(deleting_norms.FrozenNorm(nn.Parameter(torch.ones(2)), 4.0), nn.Module)
