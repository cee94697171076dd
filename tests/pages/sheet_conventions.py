"""What the second side of the cheat sheet says, executed and compared."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sheet import Section, unquote
from torch import Tensor, nn
from torch.nn import functional as F

from normlab import reference, residual
from normlab.book.experiments.numerics import eps_forms
from normlab.book.experiments.numerics.library_conventions import read_conventions
from normlab.book.proofs.invariances import INVARIANCES
from normlab.norms import label_cells, label_parameters

DATA = Path(__file__).resolve().parents[2] / "book" / "_data"
NORMS = ("batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm")


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def over(labels: np.ndarray, reduce: Callable[[np.ndarray], Any]) -> Callable[..., np.ndarray]:
    """A function that replaces each entry by what `reduce` makes of all with its label."""

    def apply(values: np.ndarray) -> np.ndarray:
        reduced = np.array([reduce(values[labels == k]) for k in range(labels.max() + 1)])
        return reduced[labels]

    return apply


def verify_gradients(section: Section) -> None:
    upstream, centered, uncentered, frozen, parameters = section.take_listing()
    x, dy = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    calls: dict[str, Callable[[float], tuple[Any, Any]]] = {
        "batch_norm": lambda e: reference.batch_norm(x, None, None, w, b, training=True, eps=e),
        "layer_norm": lambda e: reference.layer_norm(x, (5,), w, b, eps=e),
        "rms_norm": lambda e: reference.rms_norm(x, (5,), w, eps=e),
        "group_norm": lambda e: reference.group_norm(x, 2, w, b, eps=e),
        "instance_norm": lambda e: reference.instance_norm(x, None, None, w, b, eps=e),
    }
    for norm in NORMS:
        cells = label_cells(norm, x.shape, num_groups=2 if norm == "group_norm" else None)
        weights = label_parameters(norm, x.shape)
        w, b = np.random.default_rng(1).normal(size=(2, weights.max() + 1))
        mean, total = over(cells, np.mean), over(weights, np.sum)
        for eps in (0.1, 1e-12):
            c = x if norm == "rms_norm" else x - mean(x)
            rstd = 1 / np.sqrt(mean(c**2) + eps)
            names: dict[str, Any] = {"dy": dy, "weight": w[weights], "x_hat": c * rstd}
            names |= {"rstd": rstd, "mean": mean, "total": total}
            exec(upstream, names)
            exec(uncentered if norm == "rms_norm" else centered, names)
            exec(parameters, names)
            expected = getattr(reference, f"{norm}_backward")(dy, calls[norm](eps)[1])
            assert np.allclose(names["dx"], expected.dx), norm
            assert np.allclose(names["dweight"], expected.dweight[weights]), norm
            if expected.dbias is not None:
                assert np.allclose(names["dbias"], expected.dbias[weights]), norm
        assert np.allclose(mean(names["dx"] * names["x_hat"]), 0)
        assert np.allclose(mean(names["dx"]), 0) == (norm != "rms_norm")
    running = np.abs(np.random.default_rng(2).normal(size=(2, 4)))
    w, b = np.random.default_rng(1).normal(size=(2, 4))
    cache = reference.batch_norm(x, *running, w, b, training=False, eps=0.1)[1]
    names = {"g": dy * w[:, None], "rstd": (1 / np.sqrt(running[1] + 0.1))[:, None]}
    exec(frozen, names)
    assert np.allclose(names["dx"], reference.batch_norm_backward(dy, cache).dx)
    leaf = randn(4, 16).requires_grad_()
    F.layer_norm(leaf, (16,)).sum().backward()
    assert leaf.grad is not None and leaf.grad.abs().max() < 1e-12
    section.claim("`mean`", "`total`", "`x_hat`", "`dx`", "`y.sum()`")
    assert "With eps = 0 the first" in section.rest and "gradient 0" in section.rest
    section.claim("0")


def verify_eps(section: Section) -> None:
    head, *rows = section.take_table()
    assert head[1:] == ["divisor", "half size at std", "largest gain", "units"]
    places = {"inside (torch)": "inside", "outside": "outside", "floor": "clamp"}
    assert [row[0] for row in rows] == list(places)
    functions: dict[str, Any] = {"sqrt": math.sqrt, "max": max}
    for name, *cells in rows:
        place: Any = places[name]
        divisor, half, gain = (unquote(cell) for cell in cells[:3])
        for eps in (1e-5, 0.01):
            for std in (0.5, 0.02):
                size = std / eval(divisor, {**functions, "var": std**2, "eps": eps})
                assert math.isclose(size, eps_forms.output_size(std, eps, place)), name
            at = eval(half, {**functions, "eps": eps})
            assert math.isclose(eps_forms.output_size(at, eps, place), 0.5), name
            slope = eps_forms.output_size(1e-12, eps, place) / 1e-12
            assert math.isclose(eval(gain, {**functions, "eps": eps}), slope, rel_tol=1e-6), name
        power = {"x²": 2, "x": 1}[cells[3]]
        scaled = eval(divisor, {**functions, "var": 9 * 0.04, "eps": 3**power * 0.1})
        assert math.isclose(scaled, 3 * eval(divisor, {**functions, "var": 0.04, "eps": 0.1})), name
    eps = 1e-5
    section.claim(f"{eps:.0e}", f"{eps_forms.half_size(eps, 'inside'):.1e}", f"{eps**-0.5:.0f}")


def verify_divisor(section: Section) -> None:
    x, eps = 2 + 3 * randn(6, 4), 1e-12
    outputs = [
        F.batch_norm(x, None, None, training=True, eps=eps).T,
        F.layer_norm(x, (4,), eps=eps),
        F.group_norm(x, 1, eps=eps),
        F.instance_norm(x[None], eps=eps)[0],
        F.rms_norm(x, (4,), eps=eps),
    ]
    assert all(torch.allclose(y.square().mean(-1), torch.ones(()).double()) for y in outputs)
    assert torch.allclose(x.var(-1), x.var(-1, correction=1))
    assert torch.allclose(x.std(-1), x.var(-1, correction=1).sqrt())
    c = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
    shrink, kept, update, left = re.findall(r"`([^`]*[*/][^`]*)`", section.rest)
    assert torch.allclose(
        c.square().mean(-1).sqrt(), torch.tensor(eval(shrink, {"sqrt": math.sqrt, "n": 4})).double()
    )
    batch = {"n": 6, "batch_var": x.var(0, correction=0), "batch": x.mean(0)}
    norm = nn.BatchNorm1d(4, momentum=0.3).double()
    norm(x)
    after = {"momentum": 0.3, "running": torch.zeros(4).double(), **batch}
    assert torch.allclose(norm.running_mean, eval(update, after))
    after |= {"running": torch.ones(4).double(), "batch": eval(kept, batch)}
    assert torch.allclose(norm.running_var, eval(update, after))
    norm(x), norm(x)
    start = eval(left, {"momentum": 0.3, "k": 3})
    assert torch.allclose(norm.running_mean, (1 - start) * x.mean(0))
    plain = nn.BatchNorm1d(4, momentum=None).double()
    plain(x), plain(3 * x)
    assert torch.allclose(plain.running_mean, 2 * x.mean(0))
    section.claim(
        "`x.var()`", "`x.std()`", "`running_var`", *(f"`{s}`" for s in (shrink, kept, update, left))
    )
    assert "divisor n in every norm" in section.rest and "divide by n - 1" in section.rest
    section.claim("1")


def verify_libraries(section: Section) -> None:
    head, *rows = section.take_table()
    assert head == ["library", "eps: layer", "batch", "RMS", "momentum", "for torch", "buffer"]
    conventions = read_conventions(DATA / "conventions.json")
    for name, *cells in rows:
        model, _, stored = name.partition(", stores ")
        of = {
            c.family: c
            for c in conventions
            if model in (c.layer if c.library == "transformers" else c.library, c.layer)
        }
        expected = [
            "" if f not in of else f"{of[f].eps or torch.finfo(torch.float32).eps:.0e}"
            for f in ("layer_norm", "batch_norm", "rms_norm")
        ]
        batch = of.get("batch_norm")
        if batch is not None:
            expected += [f"{batch.momentum:g} of {batch.momentum_of}", f"{batch.torch_momentum:g}"]
            expected.append(str(batch.running_divisor))
        assert cells == expected + [""] * (6 - len(expected)), name
        offset = any(c.weight_offset for c in of.values())
        assert of and stored == ("w - 1" if offset else ""), name
    module = nn.BatchNorm1d(3, eps=0.1, momentum=0.7)
    assert not {"eps", "momentum"} & set(module.state_dict())


def verify_invariances(section: Section) -> None:
    head, *rows = section.take_table()
    columns = {
        "λW": "weight_rescale",
        "λ row": "row_rescale",
        "W+1cᵀ": "weight_recenter",
        "λx": "data_rescale",
        "λ case": "case_rescale",
        "x+c": "data_recenter",
    }
    names = {"batch_norm,_train": "batch_norm", "batch_norm,_eval": "batch_norm_frozen"}
    assert head[1:] == list(columns) and len(rows) == 6
    for name, *cells in rows:
        key = name.lower().replace(" ", "_")
        row = INVARIANCES[names.get(key, key)]
        assert cells == ["yes" if row[columns[c]] else "-" for c in head[1:]], name
    weight, x, dy = randn(5, 4), randn(4, 3, seed=1), randn(3, 5, seed=2)
    gradients = []
    for factor in (1.0, 4.0):
        leaf = (factor * weight).requires_grad_()
        (F.layer_norm((leaf @ x).T, (5,), eps=0.0) * dy).sum().backward()
        gradients.append(leaf.grad)
    assert torch.allclose(gradients[0], 4 * gradients[1])
    assert "For λ > 0, eps = 0" in section.rest and "gradient by 1/λ" in section.rest
    section.claim("0", "1")


def verify_residual(section: Section) -> None:
    lines = [line.partition("  # ") for line in section.take_listing()]
    assert [line[2].partition(",")[0] for line in lines] == ["Post-LN", "Pre-LN", "DeepNorm"]
    x, norm = randn(3, 8), nn.LayerNorm(8).double()
    f = nn.Linear(8, 8).double()
    blocks = (
        residual.PostNorm(f, norm),
        residual.PreNorm(f, norm),
        residual.DeepNorm(f, norm, alpha=2.5),
    )
    for (code, _, _), block in zip(lines, blocks, strict=True):
        assert torch.allclose(eval(code, {"norm": norm, "f": f, "x": x, "alpha": 2.5}), block(x))
    _, *rows = section.take_table()
    kinds = ("only N encoder layers", "only M decoder layers")
    kinds += ("encoder, with a decoder", "decoder, with an encoder")
    assert tuple(row[0] for row in rows) == kinds
    for n, m in ((6, 6), (12, 3), (100, 500)):
        both = residual.deep_norm_constants(encoder_layers=n, decoder_layers=m)
        expected = (
            residual.deep_norm_constants(encoder_layers=n)[:2],
            residual.deep_norm_constants(decoder_layers=m)[2:],
            both[:2],
            both[2:],
        )
        for row, constants in zip(rows, expected, strict=True):
            found = [eval(unquote(cell), {"N": n, "M": m}) for cell in row[1:]]
            assert np.allclose(found, np.array(constants, dtype=float)), row
    names = ("q", "k", "value", "out", "feed_forward_in", "feed_forward_out")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        block = nn.ModuleDict({name: nn.Linear(256, 256) for name in names})
        residual.deep_norm_init_(block, 0.3)
    gains = {name: block[name].weight.square().mean().item() ** 0.5 * 16 for name in names}
    assert all(abs(g - (1 if n in "qk" else 0.3)) < 0.02 for n, g in gains.items())
    assert "query and key keep 1" in section.rest
    section.claim("1")


def verify_precision(section: Section) -> None:
    assert "in float32 for 16-bit input" in section.rest
    x = 300 + 100 * randn(4, 64)
    for dtype in (torch.float16, torch.bfloat16):
        half = x.to(dtype)
        once = F.layer_norm(half.float(), (64,)).to(dtype)
        assert torch.allclose(F.layer_norm(half, (64,)), once, rtol=0, atol=0)
    assert math.isfinite(torch.tensor(255.0).half().square().item())
    below = torch.nextafter(torch.tensor(256.0).half(), torch.tensor(0.0).half())
    assert below.square().isfinite() and torch.tensor(256.0).half().square().isinf()
    assert torch.tensor(1e-8).half() == 0
    section.claim("256", "1e-08", "0")
    x, mean = randn(3, 4).numpy(), np.mean
    (formula,) = re.findall(r"`(mean[^`]+)`", section.rest)
    assert math.isclose(eval(formula, {"x": x, "mean": mean}), x.var())
    ratios = [(2 * 2**p) ** 0.5 for p in (23, 10, 7)]  # where (2 ** -(p + 1)) * ratio**2 is 1
    digits = [
        -math.log2(torch.finfo(t).eps) for t in (torch.float32, torch.float16, torch.bfloat16)
    ]
    assert digits == [23, 10, 7]
    written = "mean / std = {:.0f} in float32, {:.0f} in float16, {:.0f} in bfloat16"
    assert written.format(*ratios) in " ".join(section.rest.split())
    section.claim(f"`{formula}`", *(f"{r:.0f}" for r in ratios))
    x, weight = randn(64, 256).bfloat16(), 1 + 0.2 * randn(256, seed=1).bfloat16()
    normalized = F.rms_norm(x.float(), (256,))
    twice = normalized.bfloat16() * weight
    once = (normalized * weight.float()).bfloat16()
    right = (F.rms_norm(x.double(), (256,)) * weight.double()).bfloat16()
    assert (once == right).float().mean() > 0.99 > 0.85 > (twice == right).float().mean()
    assert "times weight, then cast; the other order rounds twice" in section.rest
    step = torch.finfo(torch.bfloat16).eps
    assert f"just above 1 move in steps of 1/{1 / step:.0f}" in section.rest
    assert torch.tensor(1.0).bfloat16() + 0.4 * step == 1
    section.claim("1", f"{1 / step:.0f}")
