"""The answers to the exercises on checks, and whether what these exercises say of layers is so."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import normlab
from normlab.book.exercises import checks as exercises
from normlab.checks import LAYER_NORM_MUTANTS, check_layer, error_budget, max_error


def _inputs(*shape, scale=1.0, mean=0.0):
    g = torch.Generator().manual_seed(0)
    return [mean + scale * torch.randn(shape, generator=g), *torch.randn(3, *shape, generator=g)]


def _gradients(layer, x, w, b, dy):
    leaves = [t.clone().requires_grad_() for t in (x, w[0], b[0])]
    layer(leaves[0], x.shape[-1:], *leaves[1:]).backward(dy)
    return [t.grad for t in leaves]


def gradients_agree(layer):
    x, w, b, dy = _inputs(8, 16)
    pairs = zip(_gradients(layer, x, w, b, dy), _gradients(F.layer_norm, x, w, b, dy), strict=True)
    return all(torch.allclose(ours, theirs, atol=1e-4) for ours, theirs in pairs)


def values_agree(layer, scale=1.0):
    x = _inputs(8, 16, scale=scale)[0]
    return torch.allclose(layer(x, (16,)), F.layer_norm(x, (16,)), atol=1e-4)


def far_values_agree(layer):
    x = _inputs(8, 64, mean=1e4)[0]
    exact = F.layer_norm(x.double(), (64,))
    theirs = max_error(F.layer_norm(x, (64,)), exact)
    return max_error(layer(x, (64,)), exact) <= error_budget(exact, x.dtype, theirs)


def suite(layer):
    return gradients_agree(layer) and values_agree(layer, 3e-3) and far_values_agree(layer)


def sum_of_gradients(layer):
    x = _inputs(8, 16)[0].requires_grad_()
    layer(x, (16,)).sum().backward()
    return bool(x.grad.abs().max() < 1e-4)


def notices(mistake):
    return mistake in ("the gradient lacks the projection term", "mean and variance are detached")


GUILTY = {"A": "grouping", "B": "weight gradient", "C": "right", "D": "running variance"}
BOXES = ("rms_norm", "group_norm", "batch_norm", "layer_norm", "instance_norm")
DECLARED = {"eps": 1e-6, "eps_placement": "outside", "weight_offset": 1}
RIGHT = {
    "check_gradcheck": notices,
    "check_killer": gradients_agree,
    "check_suite": suite,
    "check_suspects": lambda: GUILTY,
    "check_black_boxes": lambda: BOXES,
    "check_declaration": lambda: DECLARED,
}


def changed(**entries):
    return lambda: GUILTY | entries


def without(name):
    return lambda: {k: v for k, v in DECLARED.items() if k != name}


def bitwise(layer):
    x = _inputs(8, 16)[0]
    return torch.equal(layer(x, (16,)), F.layer_norm(x, (16,)))


def asserting_at_length(layer):
    if not gradients_agree(layer):
        raise RuntimeError("Jacobian mismatch,\nnumerical: 1.0\nanalytical: 2.0")
    return True


def asserting(layer):
    assert gradients_agree(layer), "gradients"
    return True


def in_numpy(layer):
    x, w, b, dy = _inputs(6, 10)
    ours, right = (
        np.concatenate([g.ravel() for g in _gradients(f, x, w, b, dy)])
        for f in (layer, F.layer_norm)
    )
    return np.abs(ours - right).max() < 1e-4


def suite_at_once(layer):
    return torch.tensor(
        [gradients_agree(layer), values_agree(layer, 3e-3), far_values_agree(layer)]
    ).all()


OTHER = {
    "check_gradcheck": lambda mistake: np.bool_("lacks" in mistake or "detached" in mistake),
    "check_killer": in_numpy,
    "check_suite": suite_at_once,
    "check_suspects": lambda: dict(reversed(GUILTY.items())),
    "check_black_boxes": lambda: np.array(BOXES),
    "check_declaration": lambda: {
        "eps": 0.000001,
        "eps_placement": "outside",
        "weight_offset": 1.0,
    },
}
WRONG = {
    "check_gradcheck": {
        "everything": (lambda mistake: True, "it fits the wrong formula"),
        "nothing": (lambda mistake: False, "and that it sees"),
        "words": (lambda mistake: "yes", "expected True or False, got str"),
        "axes only": (lambda mistake: notices(mistake) or "axis" in mistake, "the wrong axis"),
    },
    "check_killer": {
        "accepts all": (lambda layer: True, "Its output is right; ask for the gradient"),
        "rejects all": (lambda layer: False, "a false alarm: it always rejects torch's own"),
        "y.sum()": (sum_of_gradients, "the gradient of y.sum() is zero in the right"),
        "values only": (values_agree, "1 live: backward_without_projection_term"),
        "words": (lambda layer: "yes", "expected True or False, got str"),
        "bit for bit": (bitwise, "two right layers differ by rounding"),
        "many lines": (asserting_at_length, "RuntimeError: Jacobian mismatch; return False"),
        "assert": (asserting, "return False instead"),
    },
    "check_suite": {
        "the default of eps": (
            lambda layer: layer is LAYER_NORM_MUTANTS["other_eps"] or suite(layer),
            "Leave eps out once",
        ),
        "gradients only": (gradients_agree, "3 live: eps_outside, other_eps, one_pass. Where does"),
        "nothing far from zero": (
            lambda layer: gradients_agree(layer) and values_agree(layer, 3e-3),
            "1 live: one_pass. A variance that cancels",
        ),
        "no gradients": (
            lambda layer: values_agree(layer, 3e-3) and far_values_agree(layer),
            "4 live: detached_statistics",
        ),
        "a function that is not called": (
            lambda layer: far_values_agree(layer) and values_agree(layer) and sum_of_gradients,
            "expected True or False, got function",
        ),
    },
    "check_suspects": {
        "A": (changed(A="axes"), "A is not 'axes': its output differs"),
        "B": (changed(B="input gradient"), "the gradient by the input are right"),
        "C": (changed(C="eps"), "a few roundings is no mistake"),
        "D": (changed(D="divisor"), "look at what it leaves behind"),
        "one only": (lambda: {"A": "axes"}, "the keys A, B, C, D"),
    },
    "check_black_boxes": {
        "no RMS norm": (lambda: ("layer_norm", *BOXES[1:]), "add the same number"),
        "no groups": (lambda: (BOXES[0], "instance_norm", *BOXES[2:]), "one channel"),
        "no batch norm": (lambda: (*BOXES[:2], "layer_norm", *BOXES[3:]), "one sample"),
        "no layer norm": (lambda: (*BOXES[:3], "rms_norm", BOXES[4]), "box 3 is no rms_norm"),
        "torch's name": (lambda: ("LayerNorm", *BOXES[1:]), "is no family"),
        "too few": (lambda: BOXES[:3], "a tuple of 5 names"),
    },
    "check_declaration": {
        "nothing": (dict, "eps is added to the root, expected inside"),
        "no offset": (without("weight_offset"), "declare weight_offset=1"),
        "no place": (without("eps_placement"), "eps"),
        "no eps": (without("eps"), "eps"),
        "no convention": (lambda: {"offset": 1}, "TypeError: offset: not a convention"),
    },
}


def test_a_hesitant_check_is_noticed():
    calls = iter(range(1000))
    verdict = exercises.check_killer(
        lambda layer: (
            layer is not LAYER_NORM_MUTANTS["backward_without_projection_term"]
            or next(calls) % 3 > 0
        )
    )
    assert "in some calls only" in verdict


@pytest.mark.parametrize("name", ["bessel_corrected", "wrong_axis", "eps_outside"])
def test_gradcheck_accepts_a_wrong_formula(name):
    """What the exercise on gradcheck says is so."""
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layer = LAYER_NORM_MUTANTS[name]
    assert torch.autograd.gradcheck(lambda t: layer(t, (5,)), x.requires_grad_())


@pytest.mark.parametrize("name", ["detached_statistics", "backward_without_projection_term"])
def test_gradcheck_rejects_a_gradient_that_does_not_fit(name):
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layer = LAYER_NORM_MUTANTS[name]
    fits = torch.autograd.gradcheck(
        lambda t: layer(t, (5,)), x.requires_grad_(), raise_exception=False
    )
    assert not fits


def test_suspects_are_what_the_grader_says():
    reports = {k: check_layer(f, like=like) for k, (like, f) in exercises.SUSPECTS.items()}
    mistakes = {k: {f.mistake for f in r.failures} for k, r in reports.items()}
    expected = {"wrong_grouping"}, {"averaged"}, set(), {"running_var_biased"}
    assert mistakes == dict(zip("ABCD", expected, strict=True))


@pytest.mark.parametrize(("box", "family"), list(zip(exercises.BLACK_BOXES, BOXES, strict=True)))
def test_black_boxes_are_what_the_grader_says(box, family):
    assert normlab.identify(box, shape=exercises.BLACK_BOX_SHAPE).family == family
