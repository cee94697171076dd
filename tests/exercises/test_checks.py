"""Right answers pass, and each classic wrong one gets the sentence that names the mistake."""

import pytest
import torch
import torch.nn.functional as F

import normlab
from normlab.checks import LAYER_NORM_MUTANTS, check_layer, error_budget, max_error
from normlab.exercises import checks as exercises


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


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_killer", lambda layer: True, "Its output is right; ask for the gradient"),
        ("check_killer", lambda layer: False, "a false alarm: it always rejects torch's own"),
        ("check_killer", sum_of_gradients, "the gradient of y.sum() is zero in the right"),
        ("check_killer", values_agree, "1 live: backward_without_projection_term"),
        ("check_killer", lambda layer: "yes", "expected True or False, got str"),
        (
            "check_killer",
            lambda layer: torch.equal(
                layer(_inputs(8, 16)[0], (16,)), F.layer_norm(_inputs(8, 16)[0], (16,))
            ),
            "two right layers differ by rounding",
        ),
        ("check_suite", gradients_agree, "3 live: eps_outside, other_eps, one_pass. Where does"),
        (
            "check_suite",
            lambda layer: gradients_agree(layer) and values_agree(layer, 3e-3),
            "1 live: one_pass. A variance that cancels",
        ),
        (
            "check_suite",
            lambda layer: values_agree(layer, 3e-3) and far_values_agree(layer),
            "4 live: detached_statistics",
        ),
        (
            "check_suite",
            lambda layer: far_values_agree(layer) and values_agree(layer) and sum_of_gradients,
            "expected True or False, got function",
        ),
        ("check_suspects", changed(A="axes"), "A is not 'axes': its output differs"),
        ("check_suspects", changed(B="input gradient"), "the gradient by the input are right"),
        ("check_suspects", changed(C="eps"), "a few roundings is no mistake"),
        ("check_suspects", changed(D="divisor"), "look at what it leaves behind"),
        ("check_suspects", lambda: {"A": "axes"}, "the keys A, B, C, D"),
        ("check_black_boxes", lambda: ("layer_norm", *BOXES[1:]), "add the same number"),
        ("check_black_boxes", lambda: (BOXES[0], "instance_norm", *BOXES[2:]), "one channel"),
        ("check_black_boxes", lambda: (*BOXES[:3], "rms_norm", BOXES[4]), "box 3 is no rms_norm"),
        ("check_black_boxes", lambda: (*BOXES[:2], "layer_norm", *BOXES[3:]), "one sample"),
        ("check_black_boxes", lambda: ("LayerNorm", *BOXES[1:]), "is no family"),
        ("check_black_boxes", lambda: BOXES[:3], "a tuple of 5 names"),
        ("check_declaration", dict, "eps is added to the root, expected inside"),
        ("check_declaration", without("weight_offset"), "declare weight_offset=1"),
        ("check_declaration", without("eps_placement"), "eps"),
        ("check_declaration", without("eps"), "eps"),
        ("check_declaration", lambda: {"offset": 1}, "TypeError: offset: not a convention"),
    ],
)
def test_mistakes_are_named(name, answer, says):
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong: ")
    assert says in verdict


def test_a_hesitant_check_is_noticed():
    calls = iter(range(1000))
    verdict = exercises.check_killer(
        lambda layer: (
            layer is not LAYER_NORM_MUTANTS["backward_without_projection_term"]
            or next(calls) % 3 > 0
        )
    )
    assert "in some calls only" in verdict


def test_a_check_that_raises_for_a_wrong_layer_is_told_to_return():
    def answer(layer):
        assert gradients_agree(layer), "gradients"
        return True

    assert "return False instead" in exercises.check_killer(answer)


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
