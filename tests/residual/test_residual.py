"""Blocks against their formulas, constants against a table, gains matrix by matrix."""

import pytest
import torch
from torch import nn

from normlab.layers import LayerNorm
from normlab.residual import DeepNorm, PostNorm, PreNorm, deep_norm_constants, deep_norm_init_

# wang2022deepnet, Figure 2, evaluated by hand to four digits
TABLE = [
    ((6, 0), (1.8612, 0.3799, None, None)),
    ((12, 0), (2.2134, 0.3195, None, None)),
    ((24, 0), (2.6321, 0.2686, None, None)),
    ((100, 0), (3.7606, 0.1880, None, None)),
    ((0, 6), (None, None, 1.8612, 0.3799)),
    ((0, 1000), (None, None, 6.6874, 0.1057)),
    ((6, 6), (1.4179, 0.4970, 2.0598, 0.3433)),
    ((18, 18), (1.9987, 0.3526, 2.7108, 0.2608)),
    ((100, 100), (3.4157, 0.2063, 4.1618, 0.1699)),
    ((500, 500), (5.6482, 0.1248, 6.2233, 0.1136)),
    ((1, 1), (0.81, 0.87, 3**0.25, 12**-0.25)),
]


@pytest.mark.parametrize(("layers", "expected"), TABLE)
def test_constants(layers, expected):
    got = deep_norm_constants(encoder_layers=layers[0], decoder_layers=layers[1])
    for value, want in zip(got, expected, strict=True):
        assert value == (None if want is None else pytest.approx(want, abs=6e-5))
    names = ("encoder_alpha", "encoder_beta", "decoder_alpha", "decoder_beta")
    assert [getattr(got, n) for n in names] == list(got)


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({}, ValueError, "both"),
        ({"encoder_layers": -1}, ValueError, "encoder_layers"),
        ({"encoder_layers": 3, "decoder_layers": -1}, ValueError, "decoder_layers"),
        ({"encoder_layers": 6.0}, TypeError, "encoder_layers"),
        ({"decoder_layers": "6"}, TypeError, "decoder_layers"),
        ({"encoder_layers": True}, TypeError, "encoder_layers"),
    ],
)
def test_constants_refuse(arguments, error, word):
    with pytest.raises(error, match=word):
        deep_norm_constants(**arguments)


@pytest.fixture
def parts():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        branch, norm = nn.Linear(6, 6).double(), LayerNorm(6).double()
        return branch, norm, torch.randn(3, 6, dtype=torch.float64)


def test_blocks_are_their_formulas(parts):
    branch, norm, x = parts
    torch.testing.assert_close(PostNorm(branch, norm)(x), norm(x + branch(x)))
    torch.testing.assert_close(PreNorm(branch, norm)(x), x + branch(norm(x)))
    torch.testing.assert_close(DeepNorm(branch, norm, alpha=2.5)(x), norm(2.5 * x + branch(x)))
    torch.testing.assert_close(DeepNorm(branch, norm, alpha=1)(x), PostNorm(branch, norm)(x))


def test_alpha_is_on_the_skip_and_nowhere_else(parts):
    branch, norm, x = parts
    y = DeepNorm(branch, norm, alpha=2.5)(x)
    for wrong in (
        norm(x + 2.5 * branch(x)),  # on the branch
        norm(2.5 * (x + branch(x))),  # on the sum: does nothing at all
        norm(2.5 * x),  # without the branch: does nothing at all
        x + norm(2.5 * x + branch(x)),
    ):
        assert (y - wrong).abs().max() > 0.1


def test_further_arguments_reach_the_sublayer(parts):
    _, norm, x = parts

    class Branch(nn.Module):
        def forward(self, x, factor, *, shift=0.0):
            return x * factor + shift

    for block in (PostNorm(Branch(), norm), PreNorm(Branch(), norm)):
        assert not torch.equal(block(x, 2.0, shift=x.flip(-1)), block(x, 2.0))
    torch.testing.assert_close(
        DeepNorm(Branch(), norm, alpha=3.0)(x, 2.0, shift=x.flip(-1)),
        norm(5.0 * x + x.flip(-1)),
    )


def test_blocks_refuse(parts):
    branch, norm, x = parts
    for alpha in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="alpha"):
            DeepNorm(branch, norm, alpha=alpha)
    with pytest.raises(ValueError, match="sublayer"):
        PreNorm(nn.Linear(6, 5).double(), norm)(x)
    attention = nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    with pytest.raises(TypeError, match="sublayer"):
        PostNorm(attention, norm)(x[None], x[None], x[None])


def gain(weight):
    """Measured gain of Xavier's rule."""
    fan_out, fan_in = weight.shape
    return (weight.square().mean() * (fan_in + fan_out) / 2).sqrt().item()


class Attention(nn.Module):
    def __init__(self, names):
        super().__init__()
        for name in names:
            self.add_module(name, nn.Linear(128, 128))


@pytest.mark.parametrize(
    "names",
    [
        ("q_proj", "k_proj", "v_proj", "out_proj"),
        ("query", "key", "value", "dense"),
        ("wq", "wk", "wv", "wo"),
        ("to_q", "to_k", "to_v", "to_out"),
        ("q", "k", "v", "o"),
    ],
)
def test_gains_of_separate_projections(names):
    torch.manual_seed(0)
    block = Attention(names)
    assert deep_norm_init_(block, 0.25) is block
    query, key, value, out = (gain(getattr(block, n).weight) for n in names)
    assert query == pytest.approx(1.0, rel=0.05)
    assert key == pytest.approx(1.0, rel=0.05)
    assert value == pytest.approx(0.25, rel=0.05)
    assert out == pytest.approx(0.25, rel=0.05)


def test_gains_of_torchs_encoder_layer():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 256)
    bias = layer.linear1.bias.clone()
    deep_norm_init_(layer, 0.3)
    query, key, value = layer.self_attn.in_proj_weight.chunk(3)
    measured = [gain(w) for w in (query, key, value, layer.self_attn.out_proj.weight)]
    assert measured == pytest.approx([1.0, 1.0, 0.3, 0.3], rel=0.05)
    assert gain(layer.linear1.weight) == pytest.approx(0.3, rel=0.05)
    assert gain(layer.linear2.weight) == pytest.approx(0.3, rel=0.05)
    assert torch.equal(layer.linear1.bias, bias)
    assert torch.equal(layer.norm1.weight, torch.ones(128))


def test_gains_with_other_key_and_value_sizes():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(128, 4, kdim=96, vdim=64)
    deep_norm_init_(attention, 0.3)
    assert gain(attention.q_proj_weight) == pytest.approx(1.0, rel=0.05)
    assert gain(attention.k_proj_weight) == pytest.approx(1.0, rel=0.05)
    assert gain(attention.v_proj_weight) == pytest.approx(0.3, rel=0.05)


def test_gains_of_a_packed_projection():
    torch.manual_seed(0)
    block = nn.ModuleDict({"qkv": nn.Linear(128, 384), "proj": nn.Linear(128, 128)})
    deep_norm_init_(block, 0.2)
    query, key, value = block["qkv"].weight.chunk(3)
    measured = [gain(w) for w in (query, key, value, block["proj"].weight)]
    assert measured == pytest.approx([1.0, 1.0, 0.2, 0.2], rel=0.05)


@pytest.mark.parametrize("beta", [0, -1.0, float("nan")])
def test_init_refuses_beta(beta):
    with pytest.raises(ValueError, match="beta"):
        deep_norm_init_(nn.Linear(2, 2), beta)


def test_init_refuses_what_it_cannot_initialize():
    with pytest.raises(ValueError, match="block"):
        deep_norm_init_(LayerNorm(4), 0.5)
    with pytest.raises(ValueError, match="divide by 3"):
        deep_norm_init_(nn.ModuleDict({"qkv": nn.Linear(4, 10)}), 0.5)
