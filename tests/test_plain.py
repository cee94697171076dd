"""The plain norms against reference, autograd and finite differences; their form; wrong ones."""

import ast
import inspect
import io
import math
import tokenize
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab import layers, plain, reference
from normlab.book.experiments.networks.transformer import Attention, FeedForward
from normlab.layers import LayerNorm
from normlab.norms import NORMS as RECORDS
from normlab.norms import Case
from normlab.residual import DeepNorm, PreNorm, deep_norm_constants, deep_norm_init_

EPS = 1e-5
SOURCE = Path(plain.__file__).read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)
NODES = {node.name: node for node in TREE.body if isinstance(node, ast.FunctionDef)}
NORMS = [name for name in NODES if not name.endswith("_backward")]

# norm -> shapes of x, with the axes of normalized_shape or the number of groups; a norm that is not
# here has the cases of its record
CASES = {
    "batch_norm": [
        ((5, 3), None),
        ((4, 3, 6), None),
        ((2, 3, 5, 4), None),
        ((2, 3, 5, 4, 6), None),
    ],
    "batch_norm_eval": [((5, 3), None), ((4, 3, 6), None), ((2, 3, 5, 4), None), ((1, 3), None)],
    "batch_renorm": [((5, 3), None), ((4, 3, 6), None), ((2, 3, 5, 4), None)],
    "layer_norm": [((4,), 1), ((5, 4), 1), ((3, 5, 64), 1), ((2, 3, 4, 5), 2), ((3, 4, 5), 3)],
    "rms_norm": [((4,), 1), ((5, 4), 1), ((3, 5, 64), 1), ((2, 3, 4, 5), 2), ((3, 4, 5), 3)],
    "group_norm": [((3, 6), 2), ((2, 6, 5), 3), ((2, 6, 5, 4), 3), ((4, 6, 5), 1), ((2, 6, 5), 6)],
    "instance_norm": [((3, 4, 5), None), ((2, 3, 5, 4), None), ((4, 2, 3, 5, 6), None)],
    "zero_centered_rms_norm": [((4,), 1), ((5, 4), 1), ((2, 3, 4, 5), 2)],
    "scale_norm": [((4,), None), ((5, 4), None), ((3, 5, 64), None)],
    "global_response_norm": [((3, 4, 5), None), ((2, 3, 5, 4), None)],
    "filter_response_norm": [((3, 4, 5), None), ((2, 3, 5, 4), None)],
}
RESULTS = ("y", "dx", "dweight", "dbias", "dthreshold")
LEARNED = ("weight", "bias", "threshold")


def record_of(name):
    return RECORDS[name.removesuffix("_eval")]


def option_of(name: str, case: Case) -> int | None:
    norm = record_of(name)
    if norm.grouped:
        return case.num_groups
    return case.normalized_ndim if "normalized_shape" in norm.signature else None


CASES |= {
    name: list(dict.fromkeys((case.shape, option_of(name, case)) for case in norm.cases))
    for name, norm in RECORDS.items()
    if name not in CASES and "plain" not in norm.absent
}
ALL = [(name, *case) for name, cases in CASES.items() for case in cases]


def make_arrays(name, shape, option, seed=0):
    """Inputs, parameters and upstream gradient of ordinary size, in float64."""
    rng = np.random.default_rng(seed)
    size = record_of(name).parameter_shape(shape, option or 1)
    found = {"x": 0.5 + rng.normal(size=shape), "weight": 1.5 + 0.5 * rng.normal(size=size)}
    for key in ("bias", "threshold", "running_mean"):
        found[key] = rng.normal(size=size)
    found["running_var"] = 0.5 + rng.random(size)
    taken = inspect.signature(getattr(plain, name)).parameters
    return {k: v for k, v in found.items() if k in taken}, rng.normal(size=shape)


def fixed_arguments(name, shape, option):
    if record_of(name).grouped:
        return {"num_groups": option}
    if name == "batch_renorm":  # of the three channels some are within the bounds
        return {"r_max": 1.2, "d_max": 0.7}
    if "normalized_shape" in record_of(name).signature:
        return {"normalized_shape": shape[-option:]}
    return {}


def compute(name, shape, option, functions=plain, dtype=torch.float64):
    """y, dx, dweight and, where there is a bias, dbias of the plain functions."""
    arrays, dy = make_arrays(name, shape, option)
    tensors = {k: torch.tensor(v, dtype=dtype) for k, v in arrays.items()}
    y, cache = getattr(functions, name)(**tensors, **fixed_arguments(name, shape, option), eps=EPS)
    gradients = getattr(functions, f"{name}_backward")(torch.tensor(dy, dtype=dtype), cache)
    return dict(zip(RESULTS, (y, *gradients), strict=False))


def by_reference(name, shape, option):
    """The reference, which has the norms of torch; of another, the layer under autograd."""
    if name.removesuffix("_eval") not in reference.__all__:
        return by_autograd(name, shape, option)
    arrays, dy = make_arrays(name, shape, option)
    x, fixed = arrays.pop("x"), fixed_arguments(name, shape, option)
    if name.startswith("batch_norm"):
        mode = {"training": name == "batch_norm"}
        fixed = mode | ({"running_mean": None, "running_var": None} if mode["training"] else {})
        name = "batch_norm"
    y, cache = getattr(reference, name)(x, **fixed, **arrays, eps=EPS)
    gradients = getattr(reference, f"{name}_backward")(dy, cache)
    found = {"y": y, **gradients._asdict()}
    return {k: v for k, v in found.items() if v is not None}


def by_autograd(name, shape, option):
    arrays, dy = make_arrays(name, shape, option)
    tensors = {k: torch.tensor(v) for k, v in arrays.items()}
    wanted = [tensors[k].requires_grad_() for k in ("x", *LEARNED) if k in tensors]
    fixed = fixed_arguments(name, shape, option)
    if name == "batch_renorm":
        fixed["training"] = True
    if name == "batch_norm":
        fixed = {"running_mean": None, "running_var": None, "training": True}
    name = name.removesuffix("_eval")
    torchs = getattr(F, name, None) or getattr(layers, name)
    y = torchs(tensors.pop("x"), **tensors, **fixed, eps=EPS)
    gradients = torch.autograd.grad(y, wanted, torch.tensor(dy))
    return dict(zip(RESULTS, (y.detach(), *gradients), strict=False))


def disagreements(found, expected, dtype=torch.float64):
    """Names of the results that differ: by 1e-12 in float64, by more than rounding in float32.

    A sum of n terms of size one is off by at most n roundings of half an epsilon of its mean size;
    twice that, and 16 more for the operations around the sums.
    """
    assert set(found) == set(expected)
    bound = 1e-12
    if dtype == torch.float32:
        bound = (found["y"].numel() + 16) * torch.finfo(dtype).eps
    wrong = []
    for key, value in expected.items():
        right = np.asarray(value)
        assert found[key].shape == right.shape
        if np.abs(found[key].numpy() - right).max() > bound * max(1.0, np.abs(right).max()):
            wrong.append(key)
    return wrong


@pytest.mark.parametrize(("name", "shape", "option"), ALL)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_and_gradients_are_those_of_the_reference(name, shape, option, dtype):
    found = compute(name, shape, option, dtype=dtype)
    assert {value.dtype for value in found.values()} == {dtype}
    assert disagreements(found, by_reference(name, shape, option), dtype) == []


@pytest.mark.parametrize(("name", "shape", "option"), ALL)
def test_gradients_are_those_of_autograd(name, shape, option):
    assert disagreements(compute(name, shape, option), by_autograd(name, shape, option)) == []


# r and d of batch renorm move under differences, and there is no gradient of them
SMALL = [c for c in ALL if math.prod(c[1]) <= 72 and c[0] != "batch_renorm"]


@pytest.mark.parametrize(("name", "shape", "option"), SMALL)
def test_gradients_are_finite_differences(name, shape, option):
    """Central differences in float64: off by about step² and by 1e-16 / step."""
    step = 1e-5
    arrays, dy = make_arrays(name, shape, option)
    fixed, found = fixed_arguments(name, shape, option), compute(name, shape, option)

    def loss(key, values):
        given = {k: torch.tensor(v) for k, v in (arrays | {key: values}).items()}
        return float((getattr(plain, name)(**given, **fixed, eps=EPS)[0].numpy() * dy).sum())

    for key in set(arrays) & {"x", *LEARNED}:
        arrays[key] = np.asarray(arrays[key])
        slopes = np.zeros_like(arrays[key])
        for cell in np.ndindex(slopes.shape):
            move = np.zeros_like(slopes)
            move[cell] = step
            slopes[cell] = loss(key, arrays[key] + move) - loss(key, arrays[key] - move)
        np.testing.assert_allclose(found[f"d{key}"], slopes / (2 * step), rtol=1e-7, atol=1e-7)


# What a reader takes away: short, one import, a shape on each line.


@pytest.mark.parametrize("name", NORMS)
def test_a_pair_runs_where_only_torch_is(name):
    pair = [ast.get_source_segment(SOURCE, NODES[n]) for n in (name, f"{name}_backward")]
    alone = execute("import torch\n\n\n" + "\n\n\n".join(pair))
    shape, option = CASES[name][0]
    assert (
        disagreements(compute(name, shape, option, alone), by_reference(name, shape, option)) == []
    )


def execute(source):
    module = type(plain)("copy")
    exec(compile(source, "copy", "exec"), module.__dict__)
    return module


def faults_of_form(source):
    """What keeps the functions of a file from being short, alone, and with a shape on each line."""
    tree = ast.parse(source)
    comments = {
        token.start[0]: token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    faults = [
        f"line {node.lineno} imports more than torch"
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and ast.unparse(node) != "import torch"
    ]
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    names = {function.name for function in functions}
    for function in functions:
        docstring, *statements, last = function.body
        if len((ast.get_docstring(function, clean=False) or "\n").splitlines()) != 1:
            faults.append(
                f"{function.name}: the docstring {ast.unparse(docstring)} is not one line"
            )
        if not isinstance(last, ast.Return):
            faults.append(f"{function.name} does not end in return")
        if len(statements) > 12:
            faults.append(f"{function.name} has {len(statements)} statements")
        faults += [
            f"{function.name}, line {line.lineno}: no shape"
            for line in statements
            if not (
                isinstance(line, ast.Assign)
                and line.lineno == line.end_lineno
                and comments.get(line.lineno, "").startswith("# (")
            )
        ]
        used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        faults += [f"{function.name} needs {other}" for other in sorted(used & names)]
        partner = function.name.removesuffix("_backward")
        if {partner, f"{partner}_backward"} - names:
            faults.append(f"{function.name} has no partner")
    return faults


def test_the_functions_are_short_and_stand_alone():
    assert faults_of_form(SOURCE) == []
    assert set(NORMS) == set(CASES)
    assert set(plain.__all__) == {*NODES, "DeepNormBlock", "PreNormBlock", "PreRMSNormBlock"}


LAYER = "".join(
    f"{ast.get_source_segment(SOURCE, NODES[name])}\n"
    for name in ("layer_norm", "layer_norm_backward")
)
FIRST = "    mean = x.mean(dims, keepdim=True)  # (*, 1)\n"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("def layer_norm(", "import numpy\n\n\ndef layer_norm(", "imports more"),
        ("def layer_norm(", "from torch import nn\n\n\ndef layer_norm(", "imports more"),
        (FIRST, FIRST * 8, "13 statements"),
        (FIRST, "    mean = x.mean(dims, keepdim=True)\n", "no shape"),
        (FIRST, "    mean = x.mean(dims, keepdim=True)  # the mean\n", "no shape"),
        (
            FIRST,
            "    if x.ndim:  # (*, D)\n        mean = x.mean(dims, keepdim=True)\n",
            "no shape",
        ),
        (FIRST, "    mean = layer_norm_backward(x)  # (*, 1)\n", "needs layer_norm_backward"),
        ("def layer_norm_backward", "def backward", "no partner"),
        ("return y, (x_hat, rstd, weight)", "cache = y  # (*, D)", "not end in return"),
        ('normalized_shape."""', 'normalized_shape.\n    More.\n    """', "not one line"),
    ],
)
def test_a_fault_of_form_is_found(old, new, fault):
    assert faults_of_form(LAYER) == []
    assert LAYER.count(old) == 1
    assert fault in "; ".join(faults_of_form(LAYER.replace(old, new)))


# Wrong pairs: the norms that can have the mistake, and what is replaced in their source.

CENTERED = ["batch_norm", "batch_renorm", "layer_norm", "group_norm", "instance_norm"]
MISTAKES = {
    "mean term dropped": (CENTERED, {"dx_hat - dx_hat.mean(DIMS, keepdim=True)": "dx_hat"}),
    "projection term dropped": (
        [*CENTERED, "rms_norm"],
        {"dx - x_hat * (dx * x_hat).mean(DIMS, keepdim=True)": "dx"},
    ),
    "projection term added": ([*CENTERED, "rms_norm"], {"dx - x_hat": "dx + x_hat"}),
    "divisor n - 1": (CENTERED, {".square().mean(DIMS, keepdim=True)": ".var(DIMS, keepdim=True)"}),
    # of a batch or instance norm the weight is one number wherever the projection is
    "weight after the projection": (
        ["layer_norm", "rms_norm"],
        {"= dy * weight": "= dy", "dx * r": "dx * weight * r"},
    ),
    "weight after the projection, grouped": (
        ["group_norm"],
        {
            "(channels * weight[:, None])": "channels",
            "(dx * rstd)": "((dx * rstd).reshape(channels.shape) * weight[:, None])",
        },
    ),
    "r left out": (["batch_renorm"], {"(rstd.shape) * r": "(rstd.shape)"}),
    "d left out": (["batch_renorm"], {"r + d)).sum": "r)).sum"}),
    "r not bounded": (["batch_renorm"], {".clamp(1 / r_max, r_max)": ""}),
    "d not bounded": (["batch_renorm"], {"d.clamp(-d_max, d_max)": "d"}),
    "weight left out": (
        ["batch_norm", "batch_norm_eval", "instance_norm"],
        {"dy * weight.reshape(": "dy * torch.ones_like(weight).reshape("},
    ),
    "a mean subtracted in evaluation": (
        ["batch_norm_eval"],
        {"= dy * weight": "= (dy - dy.mean(dims, keepdim=True)) * weight"},
    ),
    "dbias of one sample": (
        ["batch_norm", "batch_norm_eval", "instance_norm"],
        {"dbias = dy.sum(": "dbias = dy[:1].sum("},
    ),
    "dweight of one sample": (
        ["group_norm"],
        {"channels.shape)).sum((0, 2))": "channels.shape))[0].sum(1)"},
    ),
    "dweight of one row": (
        ["layer_norm", "rms_norm"],
        {"x_hat).reshape(-1, *weight.shape).sum(0)": "x_hat).reshape(-1, *weight.shape)[0]"},
    ),
    "statistics over the last axis alone": (
        ["layer_norm", "rms_norm"],
        {"range(-len(normalized_shape), 0)": "range(-1, 0)"},
    ),
    "gradient's means over the last axis alone": (
        ["layer_norm", "rms_norm"],
        {"range(-weight.ndim, 0)": "range(-1, 0)"},
    ),
    "statistics over the batch": (
        ["instance_norm"],
        {"tuple(range(2, x.ndim))": "(0, *range(2, x.ndim))"},
    ),
    "mean of one sample": (["batch_norm"], {"mean = x.mean": "mean = x[:1].mean"}),
    "groups of the wrong size": (["group_norm"], {"num_groups, -1)": "-1, num_groups)"}),
}


def make_wrong(name, replacements):
    pair = "\n\n".join(ast.get_source_segment(SOURCE, NODES[n]) for n in (name, f"{name}_backward"))
    for old, new in replacements.items():
        old, new = (t.replace("DIMS", "2" if name == "group_norm" else "dims") for t in (old, new))
        assert old in pair
        pair = pair.replace(old, new)
    return execute(f"import torch\n{pair}")


@pytest.mark.parametrize(
    ("name", "mistake"), [(name, m) for m, (names, _) in MISTAKES.items() for name in names]
)
def test_a_wrong_pair_is_rejected(name, mistake):
    wrong = make_wrong(name, MISTAKES[mistake][1])
    found = [
        disagreements(compute(name, *case, wrong), by_reference(name, *case))
        for case in CASES[name]
    ]
    assert any(found)


# The block of DeepNorm.


def copy_weights(block, attention, feed_forward, norms):
    """The package's sublayers with the plain block's weights."""
    pairs = [
        (attention.q_proj, block.query),
        (attention.k_proj, block.key),
        (attention.v_proj, block.value),
        (attention.out_proj, block.output),
        (feed_forward[0], block.up),
        (feed_forward[-1], block.down),
        (norms[0], block.norm_1),
        (norms[1], block.norm_2),
    ]
    for ours, given in pairs:
        ours.load_state_dict(given.state_dict())


def make_package_block(block, alpha):
    attention, feed_forward = Attention(8, 2), FeedForward(8, 12)
    norms = LayerNorm(8), LayerNorm(8)
    copy_weights(block, attention, feed_forward, norms)
    return nn.Sequential(
        DeepNorm(attention, norms[0], alpha=alpha), DeepNorm(feed_forward, norms[1], alpha=alpha)
    ).double()


@pytest.fixture
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("layers", [6, 100])
def test_the_block_is_the_packages(seeded, layers):
    alpha, beta, _, _ = deep_norm_constants(encoder_layers=layers)
    block = plain.DeepNormBlock(8, 2, 12, alpha, beta)
    for norm in (block.norm_1, block.norm_2):
        nn.init.normal_(norm.weight, mean=1.5)
        nn.init.normal_(norm.bias)
    expected = make_package_block(block, alpha)
    block.double()
    x, dy = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    y = block(x)
    torch.testing.assert_close(y, expected(x), rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad(y, block.value.weight, dy)
    theirs = torch.autograd.grad(expected(x), expected[0].sublayer.v_proj.weight, dy)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    for wrong in (make_package_block(block, 1.0), make_package_block(block, 1 / alpha)):
        assert not torch.allclose(y, wrong(x), atol=0.01)


def test_the_block_starts_as_the_package_does(monkeypatch):
    """Each draw by Xavier's rule is replaced by its gain, so that the gains can be compared."""
    monkeypatch.setattr(nn.init, "xavier_normal_", lambda w, gain=1.0: nn.init.constant_(w, gain))
    block = plain.DeepNormBlock(8, 2, 12, alpha=2.0, beta=0.25)
    expected = make_package_block(block, 2.0)
    deep_norm_init_(expected, 0.25)
    gains = [m.weight.unique().tolist() for m in expected.modules() if isinstance(m, nn.Linear)]
    matrices = (block.query, block.key, block.value, block.output, block.up, block.down)
    assert [m.weight.unique().tolist() for m in matrices] == gains
    assert gains == [[1.0], [1.0], [0.25], [0.25], [0.25], [0.25]]
    assert not any(m.bias.any() for m in matrices)


@pytest.mark.parametrize("block", [n for n in TREE.body if isinstance(n, ast.ClassDef)])
def test_a_block_is_short(block):
    assert block.end_lineno - block.lineno + 1 <= 25


# The block of Llama.


@pytest.mark.parametrize("heads", [1, 2])
def test_the_block_with_a_gate_is_what_its_parts_make(seeded, heads):
    """Attention head by head, the gate and the norms, all written out."""
    block = plain.PreRMSNormBlock(8, heads, 12, eps=0.1)
    for norm in (block.norm_1, block.norm_2):
        nn.init.normal_(norm.weight, mean=1.5)
    block.double()
    x = 3 * torch.randn(3, 5, 8, dtype=torch.float64)

    def normalize(x, norm):
        return x / (x.square().mean(-1, keepdim=True) + 0.1).sqrt() * norm.weight

    h = normalize(x, block.norm_1)
    q, k, v = (
        (h @ layer.weight.T).chunk(heads, -1) for layer in (block.query, block.key, block.value)
    )
    later = torch.ones(5, 5).triu(1).bool()
    mixed = [
        (a @ b.mT / a.shape[-1] ** 0.5).masked_fill(later, -torch.inf).softmax(-1) @ c
        for a, b, c in zip(q, k, v, strict=True)
    ]
    middle = x + torch.cat(mixed, -1) @ block.output.weight.T
    h = normalize(middle, block.norm_2)
    gate = h @ block.gate.weight.T
    expected = middle + (gate * gate.sigmoid() * (h @ block.up.weight.T)) @ block.down.weight.T
    torch.testing.assert_close(block(x), expected, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(block(x), 2 * expected - middle, atol=0.01)


def copy_joint_weights(block, attention, feed_forward, norms):
    """Give torch-shaped parts the weights of a block whose query, key and value are one matrix."""
    parts = zip(
        (attention.q_proj, attention.k_proj, attention.v_proj),
        block.query_key_value.weight.chunk(3),
        block.query_key_value.bias.chunk(3),
        strict=True,
    )
    with torch.no_grad():
        for layer, weight, bias in parts:
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    pairs = (
        (attention.out_proj, block.output),
        (feed_forward[0], block.up),
        (feed_forward[-1], block.down),
        (norms[0], block.norm_1),
        (norms[1], block.norm_2),
    )
    for ours, theirs in pairs:
        ours.load_state_dict(theirs.state_dict())


def test_the_pre_norm_block_is_the_packages(seeded):
    block = plain.PreNormBlock(8, 2, 12)
    for norm in (block.norm_1, block.norm_2):
        nn.init.normal_(norm.weight, mean=1.5)
        nn.init.normal_(norm.bias)
    attention, feed_forward = Attention(8, 2, causal=True), FeedForward(8, 12)
    feed_forward[1] = nn.GELU()
    norms = LayerNorm(8), LayerNorm(8)
    copy_joint_weights(block, attention, feed_forward, norms)
    expected = nn.Sequential(PreNorm(attention, norms[0]), PreNorm(feed_forward, norms[1])).double()
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    y = block.double()(x)
    torch.testing.assert_close(y, expected(x), rtol=1e-12, atol=1e-12)
    attention.causal = False
    assert not torch.allclose(y, expected(x), atol=0.01)


@pytest.mark.parametrize(
    ("make", "default"),
    [
        (plain.PreNormBlock, nn.LayerNorm),
        (plain.PreRMSNormBlock, nn.RMSNorm),
        (partial(plain.DeepNormBlock, alpha=1.0, beta=1.0), nn.LayerNorm),
    ],
)
def test_a_block_takes_another_norm(seeded, make, default):
    bare = make(8, 2, 12, norm=nn.Identity)
    assert not [name for name, _ in bare.named_parameters() if "norm" in name]
    for given, expected in (({}, default), ({"norm": LayerNorm}, LayerNorm)):
        block = make(8, 2, 12, **given)
        assert [type(m) for m in (block.norm_1, block.norm_2)] == [expected] * 2
        assert block.norm_1 is not block.norm_2
