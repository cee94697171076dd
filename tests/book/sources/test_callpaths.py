"""Call paths are read from what torch prints with an error."""

from __future__ import annotations

import sys

import pytest

from normlab.book.sources import (
    MissingInTorchError,
    callpaths,
    describe_path,
    read_error,
    trace_errors,
)
from normlab.book.sources.callpaths import _read_path, _short_name
from normlab.book.sources.symbols import Compiled

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="builds for Linux print the names")

ERROR = """Expected a matrix
Exception raised from check at /pytorch/pytorch/aten/src/ATen/x.h:92 (most recent call first):
C++ CapturedTraceback:
#4 std::_Function_handler<std::shared_ptr<int> (), f>::_M_invoke(std::_Any_data const&) from ??:0
#5 c10::Error::Error(c10::SourceLocation, std::string) from ??:0
#7 at::native::(anonymous namespace)::inner<float>(at::Tensor const&) from x.cpp:0
#7 at::native::inner<float>(at::Tensor const&)::{lambda()#1}::operator()() const from x.cpp:0
#8 c10::impl::wrap_kernel_functor_unboxed_<g<h> >::call(k<l>*) from ??:0
#9 std::tuple<at::Tensor, at::Tensor> at::native::outer(long) [clone .cold] from x.cpp:0
#15 torch::autograd::Engine::evaluate_function(int) from ??:0
#18 PyEval_EvalFrameDefault from ceval.c:4769
"""


def test_a_stack_is_read_outermost_first_without_wrappers() -> None:
    path = _read_path("f()", ERROR)
    assert path.message == "Expected a matrix"
    assert (str(path.location), path.location.name) == ("aten/src/ATen/x.h:92", "check")
    assert path.functions == ("at::native::outer", "at::native::inner")


def test_an_error_without_functions_is_reported_as_missing() -> None:
    with pytest.raises(MissingInTorchError, match=r"no C\+\+ functions in its errors"):
        _read_path("f()", "Expected a matrix")
    with pytest.raises(MissingInTorchError):
        _read_path("f()", ERROR.replace("#", "?"))


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("void at::vec::map3<double, f(int)::{lambda(x<y>)#1}>(double*)", "at::vec::map3"),
        ("at::_ops::layer_norm::call(at::Tensor const&)", "at::_ops::layer_norm::call"),
        ("(anonymous namespace)::f(int)", "f"),
    ],
)
def test_a_signature_is_cut_to_its_name(signature: str, name: str) -> None:
    assert _short_name(signature) == name


LAYER, PRODUCT, FINE = (
    "F.layer_norm(torch.ones(4, 8), (7,))",
    "torch.ones(2).mv(torch.ones(3))",
    "torch.ones(2)",
)


@pytest.fixture(scope="module")
def errors() -> dict[str, str | None]:
    """What one process, which imports torch once, says of all programs."""
    programs = (LAYER, PRODUCT, FINE)
    return dict(zip(programs, callpaths._run_failing(programs), strict=True))


@pytest.fixture
def have_run(errors: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """These programs are not run again."""
    monkeypatch.setattr(callpaths, "_run_failing", lambda programs: [errors[p] for p in programs])


@on_linux
@pytest.mark.usefixtures("have_run")
def test_an_error_is_given_as_torch_prints_it() -> None:
    message, raised, *rest = read_error(PRODUCT).strip().splitlines()
    assert "expected, got" in message and raised.startswith("Exception raised from ")
    assert any("::mv" in line for line in rest)


@pytest.mark.usefixtures("have_run")
def test_a_program_that_does_not_fail_is_refused() -> None:
    with pytest.raises(ValueError, match="did not fail"):
        read_error(FINE)
    with pytest.raises(ValueError, match="'torch.ones.2.' did not fail"):
        trace_errors(FINE)


@on_linux
@pytest.mark.usefixtures("have_run")
def test_an_error_is_traced_in_a_process_of_its_own() -> None:
    first, second = trace_errors(LAYER, PRODUCT)
    assert "normalized_shape=[7]" in first.message
    assert first.location.path == "aten/src/ATen/native/layer_norm.h"
    assert first.functions[-1] == "at::native::layer_norm_cpu"
    assert second.functions != first.functions


def test_a_program_that_fails_outside_torch_is_refused() -> None:
    with pytest.raises(ValueError, match="one did not end in an error of torch, but in: NameError"):
        trace_errors("no_such_name")


def test_every_function_of_a_path_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"inner": ("x_kernel.cpp.AVX2.cpp", "x_kernel.cpp.DEFAULT.cpp"), "outer": ()}
    monkeypatch.setattr(callpaths, "find_compiled", lambda n: {n: Compiled(1, files[n])})
    names = ["torch::autograd::THPVariable_f", "at::_ops::f::call", "torch::autograd::V::f"]
    path = callpaths.CallPath(
        "", _read_path("f()", ERROR).location, (*names, "at::native::outer", "at::native::inner")
    )
    assert describe_path(path) == (
        ("THPVariable_f", "generated; from Python to C++", "binding"),
        ("f::call", "generated; looks up the function", "dispatcher"),
        ("V::f", "generated from derivatives.yaml", "autograd"),
        ("outer", "file not kept", "function"),
        ("inner", "x_kernel.cpp", "function"),
    )
