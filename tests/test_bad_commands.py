"""Bad command lines: no traceback, exit status 2, and a sentence with the remedy in its words."""

from __future__ import annotations

import email
import importlib.metadata
import json
import re
import shlex
import subprocess
import sys

import pytest
from torch import nn

from normlab.commands import main
from normlab.commands.entry import in_flags

SOURCE = """
import sys
import torch
from torch import nn
import torch.nn.functional as F

class Noisy(nn.LayerNorm):
    def forward(self, x):
        print("a word from the layer")
        return super().forward(x)

class Exits(nn.Module):
    def forward(self, x):
        sys.exit(3)

class Slow(nn.Module):
    def forward(self, x):
        import time
        time.sleep(0.05)
        return F.layer_norm(x, x.shape[-1:])

class Refuses(nn.Module):
    def forward(self, x):
        raise RuntimeError("no input is good enough")

class Sulky(nn.Module):
    def __init__(self):
        raise RuntimeError("not today")

class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
    def forward(self, x, y):
        return self.norm(x + y)

class Configured(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.linear, self.norm = nn.Linear(5, config.size), nn.LayerNorm(config.size)
    def forward(self, x):
        return self.norm(self.linear(x))

class Config:
    def __init__(self, size=8):
        self.size = size

def pair(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    return F.layer_norm(x, normalized_shape, weight, bias, eps), x

def returned():
    return torch.ones(3), torch.ones(3)

def half(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    if x.dtype != torch.bfloat16:
        raise TypeError("bfloat16 alone")
    return F.layer_norm(x, normalized_shape, weight, bias, eps)

class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

class Shrinks(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x).mean(-1)

scripted = None
number = 3
"""
EXAMPLES = """
from torch import nn
import torch.nn.functional as F

class MyLayerNorm(nn.LayerNorm):
    pass

class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)

def fused_norm(x, weight, eps):
    return F.rms_norm(x, x.shape[-1:], weight, eps), x
"""
LINE = "torch.nn:LayerNorm --init 16"
LIKE = "--like layer_norm"
BAD = [
    ("", "usage: normlab"),
    ("cure x:y", "invalid choice: 'cure'"),
    (f"check {LINE}", "--like"),
    (f"check {LINE} --like layernorm", "invalid choice: 'layernorm'"),
    (f"check {LINE} {LIKE} --shape four", "expected sizes such as 4,16"),
    (f"check {LINE} {LIKE} --shape ,", "expected sizes such as 4,16"),
    (f"check {LINE} {LIKE} --shape 4,-16", "expected sizes such as 4,16"),
    (f"check {LINE} {LIKE} --divisor m", "invalid choice: 'm'"),
    (f"check {LINE} {LIKE} --eps small", "invalid float value"),
    (f"check {LINE} {LIKE} --eps=-1", "--eps: got -1.0; expected a number that is not negative"),
    (f"check {LINE} {LIKE} --limit 0", "expected a number of seconds above 0"),
    (f"check {LINE} {LIKE} --limit soon", "expected a number of seconds above 0"),
    (f"check {LINE} {LIKE} --dtype float12", "--dtype: got 'float12'; expected one of float64"),
    (f"check {LINE} {LIKE} --dtypes half", "--dtypes: got 'half'; expected one of float64"),
    (f"check {LINE} {LIKE} --axis 5 --shape 4,16", "--axis: got 5; expected axes of an input"),
    (f"check {LINE} {LIKE} --axis 1", "--axis: is counted in the shape of an input; pass --shape"),
    (f"check {LINE} {LIKE} --axis last --shape 4,16", "--axis: "),
    (f"check {LINE} {LIKE} --weight-shape 3 --shape 4,16", "--weight-shape: got (3,)"),
    (f"check {LINE} {LIKE} --weight-shape x --shape 4,16", "--weight-shape: "),
    (
        "check torch.nn:BatchNorm1d --init 6 --like batch_norm --axis 0 --shape 4,6",
        "--axis: the axes",
    ),
    (f"check {LINE} {LIKE} --select 0", "--select: got '0'; expected what follows the result"),
    (f"check {LINE} {LIKE} --call f(x", "--call: got 'f(x'; expected a call"),
    (f"check {LINE} {LIKE} --call f(y)", "'y' in it is unknown"),
    (f"check {LINE} {LIKE} --select [f()]", "--select: got '[f()]'"),
    (
        "check torch.nn.functional:layer_norm --like layer_norm --call f(weight)",
        "f or x is missing",
    ),
    (f"check {LINE} {LIKE} --shape 4,16 --shape 4,8", "--shape: check takes one"),
    (f"check {{file}}:pair {LIKE}", "--select '[0]'"),
    (f"check {{file}}:half {LIKE}", "Pass --dtype 'bfloat16'"),
    (f"check {{file}}:Refuses {LIKE} --shape 4,5", "no input is good enough"),
    (f"check {{file}}:Refuses {LIKE}", "--shape 4,16"),
    (f"check {{file}}:Exits {LIKE} --shape 4,5", "calls sys.exit(3)"),
    (f"check {{file}}:number {LIKE}", "expected a module or a function"),
    (f"check {{file}}:Slow {LIKE} --shape 4,8 --limit 0.3", "stopped after 0.3 seconds (--limit)"),
    ("check torch.nn:GroupNorm --init 3,7 --like group_norm", "must be divisible"),
    ("identify LayerNorm --shape 4,6", "expected module:Object"),
    ("identify :LayerNorm --shape 4,6", "expected module:Object"),
    ("identify no_such_module:X --shape 4,6", "name the file"),
    ("identify no_such_file.py:X --shape 4,6", "no such file"),
    ("identify torch.nn:layernorm --shape 4,6", "Did you mean LayerNorm"),
    ("identify torch.nn:LayerNorm --shape 4,6", "Pass its arguments with --init"),
    ("identify torch.nn:LayerNorm --init size --shape 4,6", "--init: got 'size'"),
    (f"identify {LINE}", "such as --shape 4,16"),
    (f"identify {LINE} --shape 4,5", "Pass the shape of an input that it takes"),
    ("identify {file}:Sulky --shape 4,5", "raises RuntimeError: not today"),
    ("identify {file}:Refuses --shape 4,5", "no input is good enough"),
    ("identify torch:pi --shape 4,5", "expected a module or a function"),
    ("identify torch.nn:LayerNorm --shape four", "expected sizes such as 4,16"),
    ("identify {file}:number --init 3 --shape 4,6", "--init: int takes no arguments"),
    ("identify {file}:Slow --shape 4,8 --limit 0.2", "stopped after 0.2 seconds (--limit)"),
    (f"doctor {LINE}", "--shape 4,3,32,32"),
    (f"doctor {LINE} --shape 4,16 --ignore no_rule", "--ignore: got 'no_rule'; expected one of"),
    (f"doctor {LINE} --shape 4,16 --select no_rule", "--select: got 'no_rule'; expected one of"),
    (f"doctor {LINE} --shape 4,16 --integers 0", "--integers: got 0"),
    (f"doctor {LINE} --shape 4,15", "--shape or --example: the model raises"),
    ("doctor {file}:TwoInputs --shape 4,8", "--shape or --example: the model raises"),
    ("doctor {file}:Configured --shape 4,5", "Pass its arguments with --init"),
    ("doctor {file}:Configured --config {file}:Config(size --shape 4,5", "--config: got"),
    ("doctor {file}:Configured --config {file}:Config(3,4) --shape 4,5", "with --config"),
    (f"doctor {LINE} --shape 4,16 --optimizer torch.optim:Adm", "has no 'Adm'"),
    ("doctor {file}:pair --shape 4,8", "missing"),
    ("doctor torch.nn.functional:relu --shape 4,5", "its signature is relu(input"),
    ("doctor {file}:returned --shape 4,5", "needs a module"),
    ("doctor {file}:number --shape 4,8", "takes no arguments"),
    (f"doctor {LINE} --example {{file}}:absent", "has no 'absent'"),
    (f"check {LINE} --like layernorm", "Did you mean layer_norm?"),
    (f"check {LINE} --like RMSNorm", "Did you mean rms_norm?"),
    (f"chek {LINE} {LIKE}", "Did you mean check?"),
    (f"check {LINE} {LIKE} --weigth-offset 1", "Did you mean --weight-offset?"),
    (f"doctor {LINE} --shpae 4,16", "Did you mean --shape?"),
    (f"check torch.nn:LayrNorm {LIKE}", "Did you mean LayerNorm"),
    (f"check torch.nn.LayerNorm {LIKE}", "Did you mean torch.nn:LayerNorm?"),
    (f"check torch.nn:LayerNorm {LIKE} --init eps=x", "--init: got 'eps=x'; expected literals"),
    (f"check torch.nn:LayerNorm {LIKE}", "LayerNorm(normalized_shape"),
    (f"check {{file}}:Bare {LIKE}", "layer: Bare has no method forward; give it one"),
    ("identify {file}:Bare --shape 4,8", "layer: Bare has no method forward; give it one"),
    ("doctor {file}:Bare --shape 4,8", "model: Bare has no method forward; give it one"),
    (f"check {{file}}:Unknown {LIKE}", "has no 'Unknown'. It has Noisy, Exits, Slow, "),
    (f"check torch.nn:Unknown {LIKE}", "It has BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm"),
    (f"check {LINE} {LIKE} --call g(x)", "and x, the input, as 'f(x)'"),
    ("doctor {file}:Configured --shape 4,5 --example a.b", "Did you mean a:b?"),
    (f"check torch/nn:LayerNorm --init 16 {LIKE}", "Did you mean torch.nn:LayerNorm?"),
    (f"check torch:nn:LayerNorm --init 16 {LIKE}", "Did you mean torch.nn:LayerNorm?"),
    (
        f"check torch.nn:LayerNorm(16) {LIKE}",
        "with --init: torch.nn:LayerNorm --init '16'",
    ),
    (f"check {LINE} {LIKE} --dtype fp16", "Did you mean float16?"),
    (f"doctor {LINE} --shape 4,16 --select two_ep", "Did you mean two_eps?"),
]
# what was typed is said as it was typed, though it has the form of an argument in Python
TYPED = [
    (
        ["check", "torch.nn:LayerNorm", "--like", "layer_norm", "--init", "16 eps=1e-3"],
        "'16 eps=1e-3'",
    ),
    (["identify", "eps=3:X", "--shape", "4,6"], "eps=3:X: expected module:Object"),
    (
        ["doctor", "torch.nn:LayerNorm", "--init", "8, eps=-1, like=2", "--shape", "4,8"],
        "8, eps=-1, like=2",
    ),
    (
        [
            "check",
            "torch.nn:LayerNorm",
            "--like",
            "layer_norm",
            "--init",
            "8",
            "--call",
            "f(x, eps=y)",
        ],
        "'f(x, eps=y)'",
    ),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("lines") / "layers_of_mine.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.mark.parametrize(("line", "text"), BAD)
def test_a_bad_line_says_what_to_do(line, text, file, capsys):
    words = [w.replace("{file}", file) for w in line.split()]
    try:
        status = main(words)
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    assert status == 2, out
    assert text in err
    assert "Traceback" not in err
    assert out == ""
    assert err.startswith(("normlab ", "usage: normlab"))


@pytest.mark.parametrize(("words", "text"), TYPED)
def test_what_was_typed_is_quoted_as_it_was_typed(words, text, capsys):
    assert main(words) == 2
    assert text in capsys.readouterr().err


EARLY = [
    "check torch.nn.LayerNorm --like layer_norm",
    "check torch.nn:LayerNorm --like layernorm --init 16",
    "check torch.nn:LayerNorm --like layer_norm --init size",
    "check torch.nn:LayerNorm(16) --like layer_norm",
    "check no_such_file.py:Layer --like layer_norm",
    "identify torch.nn:LayerNorm --init 16",
    "doctor a:b --shape 2,3 --example c.d",
]


@pytest.mark.parametrize("line", EARLY)
def test_what_cannot_be_read_is_refused_before_torch_is_imported(line):
    code = (
        "import sys\nfrom normlab.commands import main\n"
        "try:\n    status = main(sys.argv[1:])\n"
        "except SystemExit as stop:\n    status = stop.code\n"
        "print(status, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *line.split()], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["2", "False"], done.stderr


def test_a_report_speaks_in_flags(capsys):
    line = ["check", "torch.nn:RMSNorm", "--like", "rms_norm", "--init", "16, eps=1e-3"]
    assert main([*line, "--eps", "1e-6"]) == 1
    assert "declare it: pass --eps" in capsys.readouterr().out


def test_nothing_alone_shows_the_commands(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(f"\n    {command} " in err for command in ("check", "identify", "doctor"))


@pytest.mark.parametrize(
    "line",
    [
        "torch.nn:LayerNorm --init 16,eps=1e-6 --shape 4,16",
        "torch.nn:RMSNorm --init 16,eps=1e-6 --shape 4,16",
        "torch.nn:BatchNorm1d --init 6,eps=1e-3,momentum=0.3 --shape 8,6",
        "torch.nn:InstanceNorm2d --init 6,eps=1e-3,affine=True --shape 2,6,4,5",
    ],
)
def test_the_constructor_that_is_printed_can_be_pasted(line, capsys):
    assert main(["identify", *line.split()]) == 0
    out = capsys.readouterr().out
    printed = re.search(r"nearest_torch +(.*)", out)[1]
    name, given = re.search(r"nn:(\w+) --init (\S+)", line).groups()
    assert repr(eval(printed, vars(nn))) == repr(eval(f"{name}({given})", vars(nn)))
    for other in re.findall(r"GroupNorm\(.*\)", out):
        assert isinstance(eval(other, vars(nn)), nn.GroupNorm)


def test_another_shape_of_input_is_no_advice_where_the_output_is_wrong(file, capsys):
    line = [f"{file}:Shrinks", "--init", "16"]
    assert main(["check", *line, "--like", "layer_norm"]) == 2
    err = capsys.readouterr().err
    assert "an input of shape (5, 16) has shape (5,)" in err
    assert "--shape" not in err
    assert main(["identify", *line, "--shape", "4,16"]) == 0
    out = capsys.readouterr().out
    assert "an input of shape (4, 16) has shape (4,)" in out
    assert "wrap" not in out


def test_the_examples_of_check_run(tmp_path, capsys, monkeypatch):
    (tmp_path / "my_norms.py").write_text(EXAMPLES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    examples = re.findall(r"^  normlab (check .*)", capsys.readouterr().out, flags=re.MULTILINE)
    assert len(examples) == 3
    for example in examples:
        assert main(shlex.split(example)) == 0, capsys.readouterr().out


def test_json_is_valid_whatever_a_layer_prints(file, capsys):
    arguments = [f"{file}:Noisy", "--init", "16", "--json"]
    for line in (
        ["check", *arguments, "--like", "layer_norm"],
        ["identify", *arguments, "--shape", "4,16"],
        ["doctor", *arguments, "--shape", "4,16"],
    ):
        assert main(line) == 0
        out, err = capsys.readouterr()
        assert isinstance(json.loads(out), dict)
        assert "a word from the layer" in err
    assert main(["check", f"{file}:Exits", "--like", "layer_norm", "--shape", "4,5", "--json"]) == 2
    assert "sys.exit(3)" in json.loads(capsys.readouterr().out)["error"]


def test_what_the_new_flags_do(file, capsys):
    check = ["check", f"{file}:pair", "--like", "layer_norm", "--select", "[0]"]
    assert main([*check, "--dtypes", "float32", "--forward-only", "--no-empty"]) == 0
    assert "not tested: bfloat16 input, as asked for" in capsys.readouterr().out
    assert main(["check", f"{file}:half", "--like", "layer_norm", "--dtype", "bfloat16"]) == 0
    assert main(["doctor", f"{file}:TwoInputs", "--shape", "4,8", "--shape", "4,8"]) == 0
    config = f"{file}:Config(size=4)"
    assert main(["doctor", f"{file}:Configured", "--config", config, "--shape", "4,5"]) == 0
    capsys.readouterr()
    model = ["doctor", f"{file}:Configured", "--config", config, "--shape", "4,5"]
    assert main([*model, "--optimizer", "torch.optim:AdamW(weight_decay=0.1)"]) == 1
    assert "decayed_norm" in capsys.readouterr().out
    ignore = ["--ignore", "decayed_norm,two_eps", "--all", "--eval"]
    assert main([*model, "--optimizer", "torch.optim:AdamW(weight_decay=0.1)", *ignore]) == 0
    assert main(["identify", f"{file}:TwoInputs", "--shape", "4,8", "--shape", "4,8"]) == 0
    assert "layer_norm" in capsys.readouterr().out


def test_messages_name_flags():
    assert in_flags("pass shape=, such as shape=(4, 16)") == "pass --shape, such as --shape 4,16"
    assert in_flags("declare axis=3") == "declare --axis 3"
    assert in_flags("declare axis=(2, 3)") == "declare --axis 2,3"
    assert in_flags("declare it: pass eps=") == "declare it: pass --eps"
    assert in_flags("init: got 'a shape=(3, 4)'") == "init: got 'a shape=(3, 4)'"
    assert in_flags("num_groups: got 0") == "--num-groups: got 0"
    assert in_flags("a.select='x' stays") == "a.select='x' stays"
    untracked = "pass --no-track-running-stats"
    assert in_flags("pass track_running_stats=False") == untracked
    assert in_flags("mean(-1, dtype=x.dtype)") == "mean(-1, dtype=x.dtype)"
    assert in_flags("LayerNorm((4, 6), eps=1e-06)") == "LayerNorm((4, 6), eps=1e-06)"


def test_help_imports_no_torch():
    program = """
import sys
from normlab.commands import main
for command in ([], ["check"], ["identify"], ["doctor"]):
    try:
        main([*command, "--help"])
    except SystemExit as stop:
        assert stop.code == 0
assert not {"torch", "rich"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: normlab") == 4


def test_a_released_package_knows_where_the_book_is(capsys, monkeypatch):
    line = ["doctor", "torch.nn:BatchNorm1d", "--init", "6", "--shape", "1,6,3"]
    monkeypatch.delenv("NORMLAB_BOOK", raising=False)
    assert main(line) == 1
    assert "(see book/debugging_causes.ipynb, section debugging-batch-of-one)" in (
        capsys.readouterr().out
    )
    released = email.message_from_string(
        "Project-URL: Issues, https://example.org/issues\n"
        "Project-URL: Documentation, https://a.github.io/b\n"
    )
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: released)
    assert main(line) == 1
    page = "book/debugging_causes.html#debugging-batch-of-one"
    assert f"(see https://a.github.io/b/{page})" in capsys.readouterr().out
    monkeypatch.setenv("NORMLAB_BOOK", "file:///home/me/book/")
    assert main(line) == 1
    assert f"(see file:///home/me/{page})" in capsys.readouterr().out


def test_a_terminal_gets_tables_and_links(file, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NORMLAB_BOOK", "https://example.org/book/")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert main(["doctor", "torch.nn:BatchNorm1d", "--init", "6", "--shape", "1,6,3"]) == 1
    out = capsys.readouterr().out
    assert "(see " not in out
    assert "┃" in out or "│" in out
    assert "https://example.org/book/debugging_causes.html#debugging-batch-of-one" in out
    assert main(["identify", "torch.nn:LayerNorm", "--init", "6", "--shape", "4,6"]) == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "family: layer_norm" in plain
