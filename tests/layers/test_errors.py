"""What torch refuses is refused, in an error that names the argument, and nothing else is."""

import pytest
import torch
import torch.nn.functional as F
from torch_version import VERSION

from normlab import layers

R = torch.ones
INT = torch.ones(4, 3, dtype=torch.int64)

# name, arguments, keyword arguments, word of the message
REFUSED = [
    ("layer_norm", (R(2, 3), (4,)), {}, "normalized_shape"),
    ("layer_norm", (R(2, 3), ()), {}, "normalized_shape"),
    ("layer_norm", (R(3), (2, 3)), {}, "normalized_shape"),
    ("layer_norm", (R(2, 3), 3), {}, "normalized_shape"),
    ("layer_norm", (R(2, 3), (3,), R(2)), {}, "weight"),
    ("layer_norm", (R(2, 3), (3,), None, R(1, 3)), {}, "bias"),
    ("layer_norm", (INT, (3,)), {}, "input"),
    ("layer_norm", (R(2, 3), (3,), R(3).double()), {}, "weight"),
    ("layer_norm", (R(2, 3).bfloat16(), (3,), R(3), R(3).bfloat16()), {}, "bias"),
    ("layer_norm", (R(2, 3).half(), (3,), R(3).bfloat16()), {}, "weight"),
    ("rms_norm", (R(2, 3), (4,)), {}, "normalized_shape"),
    ("rms_norm", (R(2, 3), (3,), R(2)), {}, "weight"),
    ("rms_norm", (INT, (3,)), {}, "input"),
    ("group_norm", (R(2, 5), 2), {}, "num_groups"),
    ("group_norm", (R(2, 6), -1), {}, "num_groups"),
    ("group_norm", (R(2, 6), 0), {}, "num_groups"),
    ("group_norm", (R(1, 6), 6), {}, "input"),
    ("group_norm", (R(6), 2), {}, "input"),
    ("group_norm", (R(2, 6), 2, R(5)), {}, "weight"),
    ("group_norm", (R(2, 6), 2, R(6).double()), {}, "weight"),
    ("group_norm", (torch.ones(2, 6, dtype=torch.int32), 2), {}, "input"),
    ("batch_norm", (R(1, 3), None, None), {"training": True}, "input"),
    ("batch_norm", (R(1, 3, 1, 1), None, None), {"training": True}, "input"),
    ("batch_norm", (R(4, 3), None, None), {"training": True, "eps": 0.0}, "eps"),
    ("batch_norm", (R(4, 3), R(3), R(3)), {"eps": -1e-5}, "eps"),
    ("batch_norm", (R(4, 3), None, None), {}, "running_mean"),
    ("batch_norm", (R(4, 3), R(3), None), {}, "running_var"),
    ("batch_norm", (R(4, 3), R(3), None), {"training": True}, "running_var"),
    ("batch_norm", (R(4, 3), R(2), R(2)), {"training": True}, "running_mean"),
    ("batch_norm", (R(4, 3), None, None, R(2)), {"training": True}, "weight"),
    ("batch_norm", (R(4), None, None), {"training": True}, "input"),
    ("batch_norm", (INT, None, None), {"training": True}, "input"),
    ("batch_norm", (R(4, 3).double(), R(3), R(3)), {"training": True}, "running_mean"),
    ("instance_norm", (R(2, 3, 1),), {}, "input"),
    ("instance_norm", (R(2, 3),), {}, "input"),
    ("instance_norm", (R(2, 3, 4),), {"use_input_stats": False}, "running_mean"),
    ("instance_norm", (R(2, 3, 4), R(3), None), {}, "running_var"),
    ("instance_norm", (R(2, 3, 4), None, None, R(2)), {}, "weight"),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "word"), REFUSED)
def test_refused_as_torch_refuses(name, args, kwargs, word):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whatever torch raises
        getattr(F, name)(*args, **kwargs)
    with pytest.raises((ValueError, TypeError)) as ours:
        getattr(layers, name)(*args, **kwargs)
    assert str(ours.value).split(":")[0].startswith(word) or word in str(ours.value).split(":")[0]
    # code that catches torch's error catches this one (IndexError and ZeroDivisionError are
    # accidents of torch's implementation, not its contract)
    if theirs.type not in (IndexError, ZeroDivisionError):
        assert isinstance(ours.value, theirs.type)


ACCEPTED = [
    ("layer_norm", (R(2, 3), (3,)), {"eps": 0.0}),
    ("layer_norm", (R(0, 3), (3,), R(3), R(3)), {}),
    ("layer_norm", (R(2, 0), (0,)), {}),
    ("layer_norm", (R(2, 3).bfloat16(), (3,), R(3), R(3)), {}),
    ("layer_norm", (R(2, 3).half(), (3,), R(3).half()), {}),
    ("rms_norm", (R(2, 0), (0,)), {}),
    ("rms_norm", (R(2, 3), (3,), R(3).double()), {}),
    ("rms_norm", (R(2, 3, dtype=torch.complex64), (3,)), {}),
    ("batch_norm", (R(0, 3), R(3), R(3), R(3), R(3)), {"training": True}),
    ("batch_norm", (R(0), R(0), R(0)), {"training": True}),
    ("batch_norm", (R(4, 0), None, None), {"training": True}),
    ("batch_norm", (R(1, 3), R(3), R(3)), {}),
    ("batch_norm", (R(4, 3).half(), R(3), R(3), R(3), R(3)), {"training": True}),
    ("group_norm", (R(0, 6, 3), 2, R(6), R(6)), {}),
    ("group_norm", (R(2, 6), 6), {}),
    ("instance_norm", (R(0, 3, 4),), {}),
    ("instance_norm", (R(2, 3, 0),), {}),
    ("instance_norm", (R(2, 3, 1), R(3), R(3)), {"use_input_stats": False}),
    ("instance_norm", (R(2, 3, 4).double(), R(3), R(3)), {}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), ACCEPTED)
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
def test_accepted_as_torch_accepts(name, args, kwargs):
    theirs = getattr(F, name)(*[a.clone() if torch.is_tensor(a) else a for a in args], **kwargs)
    ours = getattr(layers, name)(*[a.clone() if torch.is_tensor(a) else a for a in args], **kwargs)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_eps_may_be_zero_in_evaluation():
    x, mean, var = R(4, 3), R(3), R(3)
    ours = layers.batch_norm(x, mean, var, eps=0.0)
    assert torch.equal(ours, torch.zeros(4, 3))
    if VERSION >= (2, 12):
        assert torch.equal(F.batch_norm(x, mean, var, eps=0.0), ours)
    else:
        with pytest.raises(ValueError, match="eps must be positive"):
            F.batch_norm(x, mean, var, eps=0.0)


@pytest.mark.parametrize(("x", "num_groups"), [(R(2, 6, 0), 2), (R(2, 0, 3), 1)])
def test_group_norm_without_positions_or_channels(x, num_groups):
    assert layers.group_norm(x, num_groups).shape == x.shape
    if VERSION < (2, 14):
        assert F.group_norm(x, num_groups).shape == x.shape
    else:
        with pytest.raises(RuntimeError, match="to be greater than 0"):
            F.group_norm(x, num_groups)


def test_empty_input_has_zero_parameter_gradients():
    weight, bias = R(3).requires_grad_(), R(3).requires_grad_()
    layers.layer_norm(R(0, 3), (3,), weight, bias).backward(R(0, 3))
    assert torch.equal(weight.grad, torch.zeros(3))
    assert torch.equal(bias.grad, torch.zeros(3))


def test_empty_batch_leaves_running_statistics():
    mean, var = torch.full((3,), 0.25), torch.full((3,), 4.0)
    layers.batch_norm(R(0, 3), mean, var, training=True)
    assert torch.equal(mean, torch.full((3,), 0.25))
    assert torch.equal(var, torch.full((3,), 4.0))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: layers.BatchNorm1d(3), (4, 3, 5, 5)),
        (lambda: layers.BatchNorm1d(3), (3,)),
        (lambda: layers.BatchNorm1d(3), (4, 5)),
        (lambda: layers.BatchNorm2d(3), (4, 3, 5)),
        (lambda: layers.InstanceNorm1d(3), (3,)),
        (lambda: layers.InstanceNorm2d(3), (4, 5)),
        (lambda: layers.InstanceNorm1d(3, affine=True), (2, 4, 5)),
        (lambda: layers.LayerNorm(3), (2, 4)),
    ],
)
def test_modules_refuse_other_shapes(make, shape):
    with pytest.raises((ValueError, RuntimeError), match=r"got (shape )?"):
        make()(R(shape))


@pytest.mark.parametrize(("groups", "channels"), [(3, 4), (0, 4), (-2, 4)])
def test_group_norm_refuses_unfit_groups(groups, channels):
    with pytest.raises(ValueError, match="num_groups"):
        layers.GroupNorm(groups, channels)


def test_instance_norm_warns_of_unused_num_features():
    with pytest.warns(UserWarning, match="num_features"):
        layers.InstanceNorm1d(3)(R(2, 4, 5))
