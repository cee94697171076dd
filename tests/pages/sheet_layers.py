"""What the first side of the cheat sheet says, compared with torch, `axes` and the reference."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sheet import IMAGE, ROLE, Section, unquote, without_links
from torch import Tensor, nn

from normlab import reference
from normlab.norms import NORMS as RECORDS
from normlab.norms import label_cells

NORMS = tuple(name for name, norm in RECORDS.items() if norm.torch)
SIZES = {"N": 3, "C": 4, "D": 4, "G": 2, "H": 2, "W": 5, "T": 3}
LAYOUTS = {"(N, D)": "vectors", "(N, C, H, W)": "images", "(N, T, D)": "tokens"}
CALL = re.compile(r"over ([A-Z/, ]+): `(nn\.[^`]+)`(?: on `(x\.[^`]+)`)?")
BACK = {"x.mT": lambda y: y.mT, "x.movedim(1, -1)": lambda y: y.movedim(-1, 1)}


def make_input(layout: str) -> Tensor:
    """Random numbers of the layout, as "(N, T, D)"."""
    shape = [SIZES[letter] for letter in re.findall(r"[A-Z]", layout)]
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def make_call(call: str, view: str | None) -> Callable[[Tensor], Tensor]:
    """The layer of a call, on a view of its input, in float64 and with an ordinary eps."""
    layer = eval(call, {"nn": nn, **SIZES}).double().train()

    def apply(x: Tensor) -> Tensor:
        y = layer(eval(view, {"x": x}) if view else x)
        return BACK[view](y) if view else y

    return apply


def find_shared_cells(layer: Callable[[Tensor], Tensor], x: Tensor) -> np.ndarray:
    """(cells, cells), True where an output depends on an input."""
    jacobian = torch.autograd.functional.jacobian(layer, x)
    return (jacobian.abs() > 1e-9).reshape(x.numel(), x.numel()).numpy()


def same_label(labels: np.ndarray) -> np.ndarray:
    return labels.reshape(-1, 1) == labels.reshape(1, -1)


def cells_of_letters(letters: str, layout: str) -> np.ndarray:
    """(cells, cells), True where two cells share a mean over the axes that the letters name."""
    axes = re.findall(r"[A-Z]", layout)
    over = [letter.strip() for letter in letters.split(",")]
    labels = np.zeros([SIZES[a] for a in axes], dtype=int)
    for i, axis in enumerate(axes):
        index = np.arange(SIZES[axis]).reshape([-1 if j == i else 1 for j in range(len(axes))])
        if f"{axis}/G" in over:
            index = index // (SIZES[axis] // SIZES["G"])
        elif axis in over:
            index = index * 0
        labels = labels * 100 + index
    return same_label(labels)


def cells_of_axes(norm: str, layout: str) -> np.ndarray:
    """The same, as `normlab.norms` has it. Channel norms read the features on the second axis."""
    shape = tuple(SIZES[a] for a in re.findall(r"[A-Z]", layout))
    if RECORDS[norm].trailing:
        return same_label(label_cells(norm, shape, normalized_ndim=3 if len(shape) == 4 else 1))
    groups = SIZES["G"] if RECORDS[norm].grouped else None
    if layout == "(N, T, D)":
        labels = label_cells(norm, (shape[0], shape[2], shape[1]), num_groups=groups)
        return same_label(labels.transpose(0, 2, 1))
    return same_label(label_cells(norm, shape, num_groups=groups))


def verify_call(norm: str, layout: str, cell: str) -> None:
    """A cell of the rows on layouts: its picture, its letters, its call."""
    picture = IMAGE.search(cell)
    assert picture is not None and picture[2] == f"_static/axes/{norm}-{LAYOUTS[layout]}.svg"
    assert len(picture[1]) > 10
    found = CALL.fullmatch(without_links(cell).strip())
    assert found is not None, cell
    shared = find_shared_cells(make_call(found[2], found[3]), make_input(layout))
    assert (shared == cells_of_letters(found[1], layout)).all(), cell
    assert (shared == cells_of_axes(norm, layout)).all(), cell


def verify_formula(norm: str, cell: str) -> None:
    x = make_input("(N, C, H, W)").numpy()
    weight, bias = np.random.default_rng(0).normal(size=(2, SIZES["C"]))
    axes = {"batch_norm": (0, 2, 3), "instance_norm": (2, 3)}.get(norm, (-1,))
    shape = (-1, 1, 1) if norm in ("batch_norm", "instance_norm") else (-1,)
    namespace: dict[str, Any] = {
        "x": x,
        "eps": 0.1,
        "sqrt": np.sqrt,
        "mean": lambda v: v.mean(axes, keepdims=True),
        "var": lambda v: v.var(axes, keepdims=True),
    }
    if norm == "batch_norm":
        expected = reference.batch_norm(x, None, None, weight, bias, training=True, eps=0.1)[0]
    elif norm == "instance_norm":
        expected = reference.instance_norm(x, None, None, weight, bias, eps=0.1)[0]
    elif norm == "group_norm":
        grouped = x.reshape(x.shape[0], SIZES["G"], -1)
        full = np.broadcast_to(weight[:, None, None], x.shape[1:]).reshape(1, SIZES["G"], -1)
        shift = np.broadcast_to(bias[:, None, None], x.shape[1:]).reshape(1, SIZES["G"], -1)
        y = eval(unquote(cell), {**namespace, "x": grouped, "weight": full, "bias": shift})
        expected = reference.group_norm(x, SIZES["G"], weight, bias, eps=0.1)[0]
        assert np.allclose(y.reshape(x.shape), expected)
        return
    else:
        weight, bias = np.random.default_rng(0).normal(size=(2, SIZES["W"]))
        extra = (bias,) if norm == "layer_norm" else ()
        function = getattr(reference, norm)
        expected = function(x, (SIZES["W"],), weight, *extra, eps=0.1)[0]
    namespace |= {"weight": weight.reshape(shape), "bias": bias.reshape(shape)}
    assert np.allclose(eval(unquote(cell), namespace), expected)


MODULES: dict[str, Callable[..., nn.Module]] = {
    "batch_norm": lambda **k: nn.BatchNorm2d(7, **k),
    "layer_norm": lambda **k: nn.LayerNorm((7, 5), **k),
    "rms_norm": lambda **k: nn.RMSNorm((7, 5), **k),
    "group_norm": lambda **k: nn.GroupNorm(7, 7, **k),
    "instance_norm": lambda **k: nn.InstanceNorm2d(7, **k),
}


def describe(tensors: dict[str, Tensor]) -> dict[str, str]:
    """Names with their shapes as the sheet writes them."""
    written = {(7,): "(C)", (7, 5): "`normalized_shape`", (): "one"}
    return {name: written[tuple(t.shape)] for name, t in tensors.items()}


def read_names(text: str) -> dict[str, str]:
    """Names and shapes as in "`weight`, `bias`: (C), `count`"; a name without a shape is one."""
    found = re.findall(r"(`\w+`(?:, `\w+`)*)(?:: (\(C\)|`normalized_shape`))?", text)
    return {name: shape or "one" for names, shape in found for name in re.findall(r"\w+", names)}


def verify_state(norm: str, cell: str, kind: str) -> None:
    """A cell on parameters or buffers, by default and with the argument that it names."""
    tensors = {
        "parameters": lambda module: dict(module.named_parameters()),
        "buffers": lambda module: dict(module.named_buffers()),
    }[kind]
    plain, _, optional = cell.partition("; if ")
    names = {} if plain == "nothing" else read_names(plain)
    assert describe(tensors(MODULES[norm]())) == names, cell
    if not optional:
        return
    argument, _, then = optional.partition(", ")
    given = describe(tensors(MODULES[norm](**{unquote(argument): True})))
    then = then.replace(
        "as batch norm", "`running_mean`, `running_var`: (C), `num_batches_tracked`"
    )
    assert given == read_names(then), cell


def same_in_eval(norm: str, **arguments: bool) -> bool:
    module = MODULES[norm](**arguments)
    x = torch.randn(3, 7, 7, 5, generator=torch.Generator().manual_seed(0))
    return torch.allclose(module.train()(x), module.eval()(x), atol=1e-5)


def verify_modes(norm: str, cell: str) -> None:
    if norm == "batch_norm":
        module = MODULES[norm]()
        x = torch.randn(3, 7, 7, 5, generator=torch.Generator().manual_seed(0))
        module(x)
        with torch.no_grad():
            zero, one, two = (module.eval()(k * x) for k in (0, 1, 2))
        assert torch.allclose(two - zero, 2 * (one - zero), atol=1e-5)  # an affine map
    assert cell.startswith("the same function") == same_in_eval(norm), cell
    if "unless it tracks" in cell:
        assert not same_in_eval(norm, track_running_stats=True)


def depends_on_others(norm: str) -> bool:
    module = MODULES[norm]().train()
    x = torch.randn(3, 7, 7, 5, generator=torch.Generator().manual_seed(0))
    other = torch.cat([x[:1], 2 + 3 * x[1:]])
    return not torch.allclose(module(x)[0], module(other)[0], atol=1e-4)


def verify_defaults(norm: str, cell: str) -> None:
    signature = inspect.signature(type(MODULES[norm]()))
    written = dict(re.findall(r"`(\w+)=([^`]+)`", cell))
    assert "eps" in written and written, cell
    for name, value in written.items():
        assert repr(signature.parameters[name].default) == value, cell
    for name in ("momentum", "affine", "track_running_stats"):
        default = signature.parameters.get(name)
        usual = {"momentum": None, "affine": True}.get(name)
        if default is not None and name != "track_running_stats" and default.default != usual:
            assert name in written, f"{name} is missing in: {cell}"
    if norm == "rms_norm":
        (number,) = re.findall(r"\d\.\de-\d+", cell)
        assert number == f"{torch.finfo(torch.float32).eps:.1e}"
        x = (1e-3 * torch.randn(8, 64, generator=torch.Generator().manual_seed(0))).half()
        given = nn.functional.rms_norm(x, (64,), eps=float(number))
        assert torch.allclose(nn.functional.rms_norm(x, (64,)), given, rtol=1e-2)


def verify_layers(section: Section) -> None:
    """The whole table of the first side, and the lines below it."""
    head, *rows = section.take_table(raw=True)
    assert [h.replace(" ", "_").lower() for h in head[1:]] == list(NORMS)
    named = {without_links(row[0]).strip(): row[1:] for row in rows}
    assert list(named) == [
        "formula", *LAYOUTS, "learned", "kept besides", "train, eval", "depends on",
        "defaults of torch", "take it for", "think twice",
    ]  # fmt: skip
    for row in rows:
        assert all(cell for cell in row), row
        assert ROLE.search("".join(row)), f"no link in the row {row[0]}"
    for i, norm in enumerate(NORMS):
        verify_formula(norm, named["formula"][i])
        for layout in LAYOUTS:
            if (norm, layout) != ("instance_norm", "(N, D)"):
                verify_call(norm, layout, named[layout][i])
        verify_state(norm, named["learned"][i], "parameters")
        verify_state(norm, named["kept besides"][i], "buffers")
        verify_modes(norm, named["train, eval"][i])
        says = named["depends on"][i]
        assert depends_on_others(norm) == (says == "the batch, in train"), says
        verify_defaults(norm, named["defaults of torch"][i])
        assert ROLE.search(named["think twice"][i])
    assert named["(N, D)"][-1].startswith("none: one value per mean")
    try:
        nn.functional.instance_norm(torch.randn(4, 3, 1))
        raise AssertionError("instance norm takes one value per mean")
    except ValueError:
        pass
    rows_of_features = torch.randn(4, 6)
    as_positions = nn.InstanceNorm1d(4)(rows_of_features)  # (4, 6) is one sample (C, L) to it
    torch.testing.assert_close(as_positions, nn.functional.layer_norm(rows_of_features, (6,)))
    verify_notes(section)


def verify_notes(section: Section) -> None:
    """Layer norm per position, and the two ends of group norm."""
    shared = find_shared_cells(make_call("nn.LayerNorm(C)", "x.movedim(1, -1)"),
                               make_input("(N, C, H, W)"))  # fmt: skip
    assert (shared == cells_of_letters("C", "(N, C, H, W)")).all()
    section.claim("`nn.LayerNorm(C)`", "`x.movedim(1, -1)`")
    x = make_input("(N, C, H, W)")
    plain = nn.functional
    assert torch.allclose(plain.group_norm(x, 1), plain.layer_norm(x, x.shape[1:]))
    assert torch.allclose(plain.group_norm(x, SIZES["C"]), plain.instance_norm(x))
    assert "One group is layer norm" in section.rest and "C groups are instance" in section.rest
    weight, bias = torch.rand(2, 3) + 1
    left = plain.group_norm(torch.randn(4, 3), 3, weight, bias)
    assert torch.allclose(left, bias.expand(4, 3), atol=1e-4)
    assert not torch.allclose(plain.group_norm(torch.randn(4, 3), 1, weight, bias), left)
    assert "at a single position only the bias is left" in " ".join(section.rest.split())
