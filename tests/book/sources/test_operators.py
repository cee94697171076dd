"""The lists of operators are read as a YAML parser reads them, and the dispatcher as it prints."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
import yaml

from normlab.book.sources import (
    MissingInTorchError,
    operators,
    read_derivative,
    read_dispatch_table,
    read_operator,
    run_default_kernel,
    trace_calls,
)
from normlab.book.sources.wheel import read_packaged

NAMES = [
    "layer_norm",
    "native_layer_norm",
    "native_layer_norm_backward",
    "rms_norm",
    "_fused_rms_norm",
    "batch_norm",
    "native_batch_norm",
    "native_group_norm",
    "add.Tensor",
]


@cache
def parse(path: str, key: str) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(read_packaged(path), Loader=loader)
    return {entry[key].partition("(")[0]: entry for entry in entries}


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_is_read_as_a_parser_reads_it(name: str) -> None:
    entry = parse("ATen/native/native_functions.yaml", "func")[name]
    found = read_operator(name)
    assert found.schema == entry["func"]
    expected = {
        key.strip(): kernel
        for keys, kernel in entry.get("dispatch", {}).items()
        for key in keys.split(",")
    }
    assert found.kernels == expected
    lines = read_packaged("ATen/native/native_functions.yaml").splitlines()
    assert lines[found.location.line - 1].startswith(f"- func: {name}(")


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_those_of_the_operator(name: str) -> None:
    base, _, overload = name.partition(".")
    schema = getattr(getattr(torch.ops.aten, base), overload or "default")._schema
    assert read_operator(name).arguments == tuple(a.name for a in schema.arguments)


@pytest.mark.parametrize(
    "name",
    ["native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "exp", "pow.Scalar"],
)
def test_a_derivative_is_read_as_a_parser_reads_it(name: str) -> None:
    entry = parse("autograd/derivatives.yaml", "name")[name]
    formulas = {k: str(v) for k, v in entry.items() if k not in ("name", "dispatch")}
    assert read_derivative(name).formulas == formulas


def test_functions_of_a_formula_are_listed_once() -> None:
    place = read_derivative("exp").location
    formulas = {"self": "f(a).g(b) ? std::h(f(c)) : k2 (d) + at::m(grad.n(1))"}
    assert operators.Derivative(formulas, place).functions("self") == ("f",)
    with pytest.raises(KeyError):
        read_derivative("exp").functions("result7")


@pytest.mark.parametrize("read", [read_operator, read_derivative, read_dispatch_table])
def test_an_operator_that_is_not_there_is_missing(read: Any) -> None:
    with pytest.raises(MissingInTorchError, match="no .*layer_normm.*; check the spelling"):
        read("layer_normm")


def test_a_part_of_a_name_is_no_name() -> None:
    with pytest.raises(MissingInTorchError):
        read_operator("native_layer")
    with pytest.raises(MissingInTorchError):
        read_derivative("layer_norm")  # its derivative is that of the operators it calls


TABLE = """CPU: registered at /w/pytorch/pytorch/build/RegisterCPU_0.cpp:2833 [kernel]
AutogradCPU: fallthrough registered at /w/pytorch/pytorch/aten/x.cpp:63 [backend fallback]
Python: no text that is understood
"""


def test_the_dispatch_table_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_dispatch_dump_table", lambda name: TABLE)
    assert read_dispatch_table("x") == {
        "CPU": operators.Registration("build/RegisterCPU_0.cpp", "kernel"),
        "AutogradCPU": operators.Registration("aten/x.cpp", "backend fallback"),
    }
    monkeypatch.setattr(torch._C, "_dispatch_dump_table", lambda name: "another format")
    with pytest.raises(MissingInTorchError, match="dispatch table"):
        read_dispatch_table("x")
    monkeypatch.delattr(torch._C, "_dispatch_dump_table")
    with pytest.raises(MissingInTorchError, match="dispatch table"):
        read_dispatch_table("x")


def test_the_real_dispatch_table_has_no_folders_of_a_machine() -> None:
    table = read_dispatch_table("native_layer_norm")
    assert table["CPU"].file.endswith(".cpp") and table["CPU"].kind == "kernel"
    assert table["Meta"].file == "torch/_meta_registrations.py"
    assert all(not entry.file.startswith("/") for entry in table.values())


def test_the_default_kernel_is_another_way_to_the_same_values() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    weight, bias = torch.randn(2, 6, generator=torch.Generator().manual_seed(1))
    arguments = (x, [6], weight, bias, 1e-5)
    y, mean, rstd = run_default_kernel("native_layer_norm", *arguments)
    expected = torch.ops.aten.native_layer_norm(*arguments)
    for got, value in zip((y, mean, rstd), expected, strict=True):
        torch.testing.assert_close(got, value, rtol=1e-5, atol=1e-5)
    calls = [
        c.name for c in trace_calls(lambda: run_default_kernel("native_layer_norm", *arguments))
    ]
    assert "native_batch_norm" in calls and "addcmul" in calls


def test_an_operator_without_default_kernel_is_refused() -> None:
    with pytest.raises(MissingInTorchError, match="default kernel of 'native_layer_norm_backward'"):
        run_default_kernel("native_layer_norm_backward")
