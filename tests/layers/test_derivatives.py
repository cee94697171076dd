"""Gradients by finite differences, once and twice, in float64."""

import pytest
import torch
from cases import SMALL_CASES, make_tensors
from torch.autograd.gradcheck import GradcheckError

from normlab import layers
from normlab.checks import LAYER_NORM_MUTANTS


def tensors(case):
    x, parameters, _ = make_tensors(case, mean=0.4)
    inputs = (x, *parameters.values())
    return tuple(t.requires_grad_() for t in inputs), list(parameters)


@pytest.mark.parametrize("case", SMALL_CASES, ids=str)
def test_first_and_second_derivative(case):
    inputs, names = tensors(case)

    def function(x, *values):
        return getattr(layers, case.name)(
            x, **case.fixed, **dict(zip(names, values, strict=True)), eps=1e-2
        )

    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


# torch's own forward-mode machinery scripts its decompositions on first use; since 2.14 it warns
# of that in another class.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
@pytest.mark.parametrize("case", SMALL_CASES, ids=str)
def test_forward_mode(case):
    inputs, names = tensors(case)

    def function(x, *values):
        return getattr(layers, case.name)(
            x, **case.fixed, **dict(zip(names, values, strict=True)), eps=1e-2
        )

    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True)


def test_gradcheck_sees_a_wrong_backward():
    x = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mutant = LAYER_NORM_MUTANTS["backward_without_mean_term"]
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(lambda v: mutant(v, (5,)), (x.requires_grad_(),))


def test_gradcheck_of_a_sum_sees_nothing():
    """Why no test here goes through y.sum(): a backward without its projection passes."""
    x = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mutant = LAYER_NORM_MUTANTS["backward_without_projection_term"]
    assert torch.autograd.gradcheck(lambda v: mutant(v, (5,)).sum(), (x.requires_grad_(),))


def test_double_backward_with_bias_and_no_weight():
    """torch 2.13 is wrong here (pytorch issue 79705); the composition is right."""
    g = torch.Generator().manual_seed(0)
    x, bias = (
        torch.randn(s, dtype=torch.float64, generator=g).requires_grad_() for s in ((3, 5), (5,))
    )
    assert torch.autograd.gradgradcheck(lambda v, b: layers.layer_norm(v, (5,), None, b), (x, bias))


def test_vmap_and_compile_without_backend():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(4, 3, 6, generator=g)
    got = torch.func.vmap(lambda v: layers.layer_norm(v, (6,)))(x)
    torch.testing.assert_close(got, layers.layer_norm(x, (6,)))
