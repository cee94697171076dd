"""The command line: reports, exit status, and errors that say what to do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import normlab
from normlab.commands import CommandError, construct, load_object, main

SOURCE = """
import torch
from torch import nn

class Bessel(nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.eps = eps
    def forward(self, x):
        h = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        mean, var = h.mean(-1, keepdim=True), h.var(-1, keepdim=True)
        y = (h - mean) / (var + self.eps).sqrt() * self.weight + self.bias
        return y.to(x.dtype)

class Sulky(nn.Module):
    def __init__(self):
        raise RuntimeError("not today")

def wide(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    if x.dtype != torch.float64:
        raise TypeError("double or nothing")
    return nn.functional.layer_norm(x, normalized_shape, weight, bias, eps)

def column(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    y = nn.functional.layer_norm(x, normalized_shape, None, None, eps)
    if weight is not None:
        y = y * weight.view(3, 1, 7)
    return y if bias is None else y + bias

ready = nn.LayerNorm(8)

def make(size=8):
    return nn.Sequential(nn.Linear(5, size), nn.BatchNorm1d(size))

def fixed(x):
    return nn.functional.rms_norm(x, (8,), None, 1e-6)

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(9, 4), nn.LayerNorm(4)
    def forward(self, tokens):
        return self.norm(self.embedding(tokens))

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
    def forward(self, x, y):
        return self.norm(x + y)

class OddNorm(nn.Module):
    def forward(self, x):
        return x / x.abs().amax(-1, keepdim=True)

class WithOddNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(5, 8), OddNorm()
    def forward(self, x):
        return self.norm(self.linear(x))

def pair():
    return torch.randn(3, 4), torch.randn(3, 4)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my_norms.py"
    path.write_text(SOURCE)
    return str(path)


def test_check_passes_and_fails(file, capsys):
    assert main(["check", "torch.nn:LayerNorm", "--like", "layer_norm", "--init", "16"]) == 0
    assert "conforms to layer_norm" in capsys.readouterr().out
    wrong = ["check", f"{file}:Bessel", "--like", "layer_norm", "--init", "16, eps=1e-6"]
    assert main([*wrong, "--shape", "4,16"]) == 1
    out = capsys.readouterr().out
    assert "does not conform" in out
    assert "n-1" in out
    assert main([*wrong, "--divisor", "n-1"]) == 0


def test_a_verdict_is_printed_with_its_count_of_cases(file, capsys):
    assert main(["check", "torch.nn.functional:layer_norm", "--like", "layer_norm"]) == 0
    assert re.match(r"conforms to layer_norm: \d+ checks, \d\d+ cases\n", capsys.readouterr().out)
    assert main(["check", f"{file}:column", "--like", "layer_norm"]) == 1
    out = capsys.readouterr().out
    assert re.match(r"does not conform to layer_norm: \d+ of \d+ checks failed, \d+ case", out)
    assert "raises when it is given a weight" in out.splitlines()[1]


def test_what_could_not_be_tested_is_one_sentence_and_no_traceback(file, capsys):
    arguments = ["check", f"{file}:wide", "--like", "layer_norm"]
    assert main([*arguments, "--json"]) == 2
    sentence = json.loads(capsys.readouterr().out)["error"]
    assert "float64 input is not" in sentence
    done = subprocess.run(
        [sys.executable, "-m", "normlab", *arguments], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"normlab check: {sentence}\n"


def test_check_takes_functions_and_conventions(file, capsys):
    assert main(["check", "torch.nn.functional:rms_norm", "--like", "rms_norm"]) == 0
    assert main(["check", f"{file}:ready", "--like", "layer_norm"]) == 0
    assert main(["check", f"{file}:ready", "--like", "layer_norm", "--eps", "1e-3"]) == 1
    group = ["check", "torch.nn:GroupNorm", "--like", "group_norm", "--init", "2, 6"]
    assert main([*group, "--num-groups", "2", "--double-backward"]) == 0
    capsys.readouterr()


FUSED = """
import torch

def norm(x, weight):
    h = x.float()
    rstd = (h.square().mean(-1, keepdim=True) + torch.finfo(torch.float32).eps).rsqrt()
    return (h * rstd * weight).to(x.dtype)

def right(x, residual, weight):
    return norm(x + residual, weight), x + residual

def ignored(x, residual, weight):
    return norm(x, weight), x + residual

def subtracted(x, residual, weight):
    return norm(x - residual, weight), x + residual

def returned_as_it_came(x, residual, weight):
    return norm(x + residual, weight), residual

def normalized_sum(x, residual, weight):
    return norm(x + residual, weight), norm(x + residual, weight)

def without_its_gradient(x, residual, weight):
    return norm(x + residual.detach(), weight), x + residual
"""


@pytest.mark.parametrize("name", re.findall(r"def (\w+)\(x, residual", FUSED))
def test_the_recipe_for_a_fused_residual_norm_fails_for_a_wrong_one(name, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    (recipe,) = re.findall(r"its norm, '(.*?)'", " ".join(capsys.readouterr().out.split()))
    page = (Path(normlab.__file__).parents[1] / "book/use_it.md").read_text(encoding="utf-8")
    assert f"`--call '{recipe}'`" in page
    (tmp_path / "fused.py").write_text(FUSED)
    status = main(["check", f"{tmp_path}/fused.py:{name}", "--like", "rms_norm", "--call", recipe])
    assert status == (name != "right"), capsys.readouterr().out


def test_json(file, capsys):
    arguments = ["check", f"{file}:Bessel", "--like", "layer_norm", "--init", "16", "--json"]
    assert main(arguments) == 1
    values = json.loads(capsys.readouterr().out)
    assert values["passed"] is False
    assert {"check", "message", "mistake"} <= set(values["failures"][0])
    assert main(["identify", f"{file}:fixed", "--shape", "4,8", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["family"], values["eps"]) == ("rms_norm", 1e-6)
    assert main(["doctor", f"{file}:make", "--shape", "6,5", "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert [f["rule"] for f in values["findings"]] == ["cancelled_bias"]
    assert main(["identify", f"{file}:Sulky", "--shape", "4,8", "--json"]) == 2
    captured = capsys.readouterr()
    assert "not today" in json.loads(captured.out)["error"]
    assert captured.err == ""


def test_identify(file, capsys):
    assert main(["identify", "torch.nn:BatchNorm1d", "--init", "6", "--shape", "4x6"]) == 0
    assert "BatchNorm1d(6)" in capsys.readouterr().out
    assert main(["identify", "torch.nn:Tanh", "--shape", "4,6"]) == 0
    assert "none of the norms" in capsys.readouterr().out


def test_doctor(file, capsys):
    assert main(["doctor", f"{file}:make", "--init", "size=4", "--shape", "6,5"]) == 1
    assert "bias=False" in capsys.readouterr().out
    assert main(["doctor", f"{file}:Words", "--shape", "2,3", "--integers", "9"]) == 0
    assert "1 norm: 1 understood, 0 not understood; no faults" in capsys.readouterr().out
    assert main(["doctor", f"{file}:Two", "--example", f"{file}:pair"]) == 0


def test_the_doctor_gives_no_all_clear_over_what_it_did_not_understand(file, capsys):
    arguments = ["doctor", f"{file}:WithOddNorm", "--shape", "6,5"]
    assert main(arguments) == 1
    out = capsys.readouterr().out
    assert "1 norm: 0 understood, 1 not understood" in out
    assert "no all-clear" in out
    assert main([*arguments, "--allow-unknown"]) == 0
    assert "not understood: norm:" in capsys.readouterr().out


def test_a_module_that_fails_while_it_is_imported(tmp_path, capsys):
    path = tmp_path / "breaks_at_import.py"
    path.write_text("1 / 0")
    assert main(["identify", f"{path}:X", "--shape", "4,6"]) == 2
    assert "importing it raises ZeroDivisionError" in capsys.readouterr().err
    assert "breaks_at_import" not in sys.modules


def test_an_ordinary_file_with_a_neighbor_and_a_dataclass_can_be_named(tmp_path, capsys):
    (tmp_path / "sizes_beside_it.py").write_text("SIZE = 8\n", encoding="utf-8")
    (tmp_path / "norms_in_a_file.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from torch import nn\n"
        "from sizes_beside_it import SIZE\n"
        "@dataclass\n"
        "class Options:\n"
        "    eps: float = 1e-5\n"
        "ready = nn.LayerNorm(SIZE, eps=Options().eps)\n",
        encoding="utf-8",
    )
    name = f"{tmp_path / 'norms_in_a_file.py'}:ready"
    assert main(["check", name, "--like", "layer_norm"]) == 0
    assert "conforms" in capsys.readouterr().out


def test_what_stands_in_the_current_folder_can_be_imported(tmp_path):
    (tmp_path / "norms_of_mine.py").write_text("from torch import nn\nnorm = nn.LayerNorm(6)\n")
    # -P: as for an installed script, Python itself does not add the current folder
    command = [sys.executable, "-P", "-m", "normlab", "identify", "norms_of_mine:norm"]
    command += ["--shape", "4,6"]
    path = str(Path(normlab.__file__).parents[1])
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert "LayerNorm(6)" in done.stdout


def test_construct():
    assert construct(torch.nn.LayerNorm, "(3, 4), bias=False").bias is None
    assert construct(torch.nn.functional.layer_norm, None) is torch.nn.functional.layer_norm
    for code in ("__import__('os')", "16); f(", "*[1]"):
        with pytest.raises(CommandError, match="--init"):
            construct(torch.nn.LayerNorm, code)
    with pytest.raises(CommandError, match="signature is LayerNorm"):
        construct(torch.nn.LayerNorm, None)
    assert load_object("torch:nn.functional.relu") is torch.nn.functional.relu


def test_the_console_script_is_declared():
    text = (Path(normlab.__file__).parents[1] / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["scripts"] == {"normlab": "normlab.commands:main"}
