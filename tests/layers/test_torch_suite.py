"""torch's own sample inputs (OpInfo, ModuleInfo) through our layers."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch_version import VERSION

from normlab import layers
from normlab.checks import error_budget, max_error

pytest.importorskip("expecttest", reason="torch.testing._internal needs expecttest")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

NAMES = ("batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm")
OPS = {name: next(o for o in op_db if o.name == f"nn.functional.{name}") for name in NAMES}
MODULES = {m.name.split(".")[-1]: m for m in module_db}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def clone(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return value


def call(function, sample, dtype=None):
    def prepare(value):
        value = clone(value)
        wide = dtype is not None and isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if wide else value

    args = [prepare(sample.input), *map(prepare, sample.args)]
    kwargs = {k: prepare(v) for k, v in sample.kwargs.items()}
    y = function(*args, **kwargs)
    tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
    return y, tensors


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_sample_inputs(name, dtype):
    samples = list(OPS[name].sample_inputs("cpu", dtype, requires_grad=True))
    assert samples
    for sample in samples:
        theirs, their_tensors = call(getattr(F, name), sample)
        ours, our_tensors = call(getattr(layers, name), sample)
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if dtype == torch.float64:  # no wider oracle
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
        else:
            expected, _ = call(getattr(F, name), sample, torch.float64)
            budget = error_budget(expected, dtype, max_error(theirs, expected))
            assert max_error(ours, expected) <= budget
        for a, b in zip(our_tensors, their_tensors, strict=True):
            if not a.requires_grad:  # running statistics, written in place
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_error_inputs(name):
    if OPS[name].error_inputs_func is None:
        pytest.skip("torch lists none for this operator")
    for error in OPS[name].error_inputs("cpu"):
        sample = error.sample_input
        if VERSION >= (2, 14) and name == "group_norm" and sample.input.numel() == 0:
            # Refused since 2.14; ours goes on as torch did before.
            assert layers.group_norm(sample.input, *sample.args).shape == sample.input.shape
            continue
        with pytest.raises(error.error_type):
            getattr(layers, name)(sample.input, *sample.args, **sample.kwargs)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "BatchNorm1d",
        "BatchNorm2d",
        "LayerNorm",
        "RMSNorm",
        "GroupNorm",
        "InstanceNorm1d",
        "InstanceNorm2d",
    ],
)
def test_module_inputs(name, training):
    info = MODULES[name]
    samples = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=training
    )
    assert samples
    for sample in samples:
        made = sample.constructor_input
        theirs = getattr(torch.nn, name)(*made.args, **made.kwargs).train(training)
        ours = getattr(layers, name)(*made.args, **made.kwargs).train(training)
        ours.load_state_dict(theirs.state_dict())
        given = sample.forward_input
        for _ in range(2):
            expected = theirs(*copy.deepcopy(given.args), **given.kwargs)
            torch.testing.assert_close(ours(*copy.deepcopy(given.args), **given.kwargs), expected)
        torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))
