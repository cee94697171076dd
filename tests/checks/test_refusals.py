"""An input that a layer should take and raises for is a failure that says what was given."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab import commands
from normlab.checks import Report, check_layer


def layer_norm_that_raises(condition):
    """F.layer_norm, but for calls of which the condition is true."""

    def function(input, normalized_shape, weight=None, bias=None, eps=1e-5):
        if condition(input, normalized_shape, weight, bias, eps):
            raise RuntimeError("not this one")
        return F.layer_norm(input, normalized_shape, weight, bias, eps)

    return function


def outer_weight(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    y = F.layer_norm(input, normalized_shape, None, None, eps)
    y = y if weight is None else y * weight[:, None]
    return y if bias is None else y + bias


def outer_weight_rms(input, normalized_shape, weight=None, eps=None):
    y = F.rms_norm(input, normalized_shape, None, eps)
    return y if weight is None else y * weight[:, None]


@pytest.mark.parametrize(
    ("like", "function", "options"),
    [
        ("layer_norm", outer_weight, {}),
        ("layer_norm", outer_weight, {"shape": (5, 6)}),
        ("rms_norm", outer_weight_rms, {}),
    ],
)
def test_a_weight_that_raises_is_named(like, function, options):
    report = check_layer(function, like=like, **options)
    assert [f.mistake for f in report.failures] == ["weight_raises"]
    assert "raises when it is given a weight" in report.failures[0].message
    assert "must match the size of tensor b" in report.failures[0].message


@pytest.mark.parametrize(
    ("condition", "mistake", "words"),
    [
        (lambda x, n, w, b, e: w is not None, "weight_raises", "given a weight"),
        (lambda x, n, w, b, e: b is not None, "bias_raises", "given a bias"),
        (lambda x, n, w, b, e: w is None, "no_weight_raises", "given no weight"),
        (
            lambda x, n, w, b, e: w is None or b is None,
            "no_bias_raises+no_weight_raises no_bias_raises",
            "given no bias and no weight",
        ),
        (lambda x, n, w, b, e: x.dim() == 2, "rank_raises", "input of rank 2"),
        (lambda x, n, w, b, e: x.dim() == 3, "rank_raises", "input of rank 3"),
        (lambda x, n, w, b, e: x.dim() == 4, "rank_raises", "input of rank 4"),
        (lambda x, n, w, b, e: len(n) > 1, "axes_raises", "several normalized axes"),
        (lambda x, n, w, b, e: n[0] == 10, "shape_raises", "input of shape (6, 10)"),
        (lambda x, n, w, b, e: 0 < x.std() < 0.1, "scale_raises", "given small input"),
        (lambda x, n, w, b, e: e == 0.1, "eps_argument_raises", "given an eps argument"),
        (lambda x, n, w, b, e: len(x) == 1, "batch_of_one_raises", "given a batch of one"),
        (lambda x, n, w, b, e: len(x) == 0, "empty_input", "given an empty input"),
        (
            lambda x, n, w, b, e: x.numel() and (x == 3).all(),
            "constant_input_raises",
            "given a constant input",
        ),
        (lambda x, n, w, b, e: not x.is_contiguous(), "non_contiguous", "given a strided input"),
        (
            lambda x, n, w, b, e: x.dtype == torch.bfloat16 and w is None,
            "no_weight_raises",
            "bfloat16",
        ),
        (
            lambda x, n, w, b, e: x.dtype == torch.half and x.numel() and x.abs().max() > 100,
            "scale_raises",
            "float16, large input",
        ),
    ],
)
def test_what_raises_is_named(condition, mistake, words):
    report = check_layer(layer_norm_that_raises(condition), like="layer_norm")
    assert {f.mistake for f in report.failures} == set(mistake.split()), str(report)
    assert words in str(report)
    assert "not this one" in str(report)


class RaisesBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        raise RuntimeError("not this one")


def test_a_backward_pass_that_raises_where_there_is_a_weight():
    def function(input, normalized_shape, weight=None, bias=None, eps=1e-5):
        y = F.layer_norm(input, normalized_shape, weight, bias, eps)
        return y if weight is None else RaisesBackward.apply(y)

    report = check_layer(function, like="layer_norm")
    assert [f.mistake for f in report.failures] == ["backward_raises"]
    assert "given a weight" in report.failures[0].message


class InEvaluation(nn.LayerNorm):
    def forward(self, x):
        if not self.training:
            raise RuntimeError("not this one")
        return super().forward(x)


class NotThree(nn.LayerNorm):
    def forward(self, x):
        if x.dim() == 3:
            raise RuntimeError("not this one")
        return super().forward(x)


class Images(nn.GroupNorm):
    def forward(self, x):
        _n, _c, _h, _w = x.shape
        return super().forward(x)


class WithoutAffine(nn.LayerNorm):
    def forward(self, x):
        y = F.layer_norm(x, self.normalized_shape, eps=self.eps)
        return y * self.weight + self.bias


@pytest.mark.parametrize(
    ("make", "like", "mistake", "words"),
    [
        (lambda: InEvaluation(6), "layer_norm", "evaluation_raises", "in evaluation mode"),
        (lambda: NotThree(6), "layer_norm", "rank_raises", "input of rank 3"),
        (lambda: Images(2, 6), "group_norm", "rank_raises", "pass shape="),
    ],
)
def test_a_module_that_raises_is_named(make, like, mistake, words):
    report = check_layer(make(), like=like)
    assert {f.mistake for f in report.failures} == {mistake}, str(report)
    assert words in str(report)


def test_a_module_for_one_rank_is_right_where_the_caller_says_so():
    report = check_layer(Images(2, 6), like="group_norm", shape=(3, 6, 5, 4))
    assert report.passed, str(report)


def test_channel_norms_may_be_of_one_rank_but_not_leave_one_out():
    def without(*ranks):
        def function(input, running_mean, running_var, weight=None, bias=None, training=False,
                     momentum=0.1, eps=1e-5):  # fmt: skip
            if input.dim() in ranks:
                raise RuntimeError("not this one")
            return F.batch_norm(
                input, running_mean, running_var, weight, bias, training, momentum, eps
            )

        return function

    for ranks in ((3, 4), (4,), (2, 3)):
        assert check_layer(without(*ranks), like="batch_norm").passed
    report = check_layer(without(3), like="batch_norm")
    assert [f.mistake for f in report.failures] == ["rank_raises"]


def test_evaluation_without_a_weight_and_missing_running_statistics():
    def evaluates(input, running_mean, running_var, weight=None, bias=None, training=False,
                  momentum=0.1, eps=1e-5):  # fmt: skip
        if not training and weight is None:
            raise RuntimeError("not this one")
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)

    report = check_layer(evaluates, like="batch_norm")
    assert [f.mistake for f in report.failures] == ["evaluation_raises"]
    assert "no weight" in str(report)

    def records(input, running_mean=None, running_var=None, weight=None, bias=None, training=False,
                momentum=0.1, eps=1e-5):  # fmt: skip
        running_mean.shape  # noqa: B018
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)

    report = check_layer(records, like="batch_norm")
    assert [f.mistake for f in report.failures] == ["no_running_raises"]


def test_none_is_asked_for_where_the_signature_has_it():
    def strict(input, normalized_shape, weight, bias, eps=1e-5):
        return F.layer_norm(input, normalized_shape, weight + 0, bias + 0, eps)

    def promises(input, normalized_shape, weight: "torch.Tensor | None", bias, eps=1e-5):
        return F.layer_norm(input, normalized_shape, weight + 0, bias, eps)

    assert check_layer(strict, like="layer_norm").passed
    report = check_layer(promises, like="layer_norm")
    assert [f.mistake for f in report.failures] == ["no_weight_raises"]


@pytest.mark.parametrize(
    ("layer", "options", "words"),
    [
        (lambda *_: 1 / 0, {}, "division by zero"),
        (WithoutAffine(6, elementwise_affine=False), {"shape": (5, 6)}, "NoneType"),
        (WithoutAffine(6, elementwise_affine=False), {}, "NoneType"),
    ],
)
def test_what_takes_no_input_could_not_be_tested(layer, options, words):
    with pytest.raises(ValueError, match="shape=") as error:
        check_layer(layer, like="layer_norm", **options)
    assert words in str(error.value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_another_dtype_alone_could_not_be_tested(dtype):
    condition = lambda x, *_: x.dtype != dtype  # noqa: E731
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ValueError, match=rf"could not be tested: float32 .*{name} input is not"):
        check_layer(layer_norm_that_raises(condition), like="layer_norm")


def test_the_command_says_that_it_could_not_be_tested(tmp_path, capsys):
    (tmp_path / "broken.py").write_text("def norm(*args):\n    raise RuntimeError('never')\n")
    status = commands.main(["check", f"{tmp_path}/broken.py:norm", "--like", "layer_norm"])
    assert status == 2
    assert "could not be tested" in capsys.readouterr().err


def test_a_verdict_counts_its_cases():
    report = check_layer(F.layer_norm, like="layer_norm")
    assert str(report).startswith(
        f"conforms to layer_norm: {len(report.checks)} checks, {report.cases} cases"
    )
    # three scales of five cases and three seeds, and then some
    assert report.cases > 45
    assert report.to_dict()["cases"] == report.cases
    assert not Report("layer_norm", checks=["shape"]).passed
    assert Report("layer_norm", checks=["shape"], cases=1).passed


def test_a_refused_dtype_is_said_and_is_no_failure():
    refuses = layer_norm_that_raises(lambda x, *_: x.dtype == torch.float16)
    report = check_layer(refuses, like="layer_norm")
    assert report.passed
    assert ["float16" in sentence for sentence in report.untested] == [True]
    assert "not tested: every torch.float16 input is refused" in str(report)
    assert report.to_dict()["untested"] == report.untested
