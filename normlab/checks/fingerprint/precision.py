"""In which dtype a layer takes its statistics, and when it casts back."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normlab.checks.fingerprint.evidence import Evidence
from normlab.checks.probing.layer import ForeignLayer
from normlab.checks.probing.measurements import Model
from normlab.checks.probing.parameters import Role

_Roles = dict[str, Role]


def _set(probe: ForeignLayer, roles: _Roles, *, neutral: bool) -> bool:
    """Give weights and biases values that are exact in half precision; False if one is hidden."""
    g = torch.Generator().manual_seed(9)
    for name, role in roles.items():
        tensor = probe.tensors[name]
        if role.kind == "weight":
            if role.offset is None:
                return False
            rest = 1 - role.offset
        else:
            rest = 0.0
        drawn = torch.full(tensor.shape, rest, dtype=torch.float64)
        if not neutral:
            drawn += torch.rand(tensor.shape, generator=g, dtype=torch.float64) - 0.5
        tensor.copy_(drawn.to(tensor.device, tensor.dtype))
    return True


def _value(probe: ForeignLayer, roles: _Roles, kind: str) -> Tensor | None:
    """The weight or bias of now in float64, in a shape that broadcasts against the input."""
    for name, role in roles.items():
        if role.kind == kind:
            view = [size if axis in role.axes else 1 for axis, size in enumerate(probe.shape)]
            return probe.tensors[name].detach().cpu().double().view(view)
    return None


def _inputs(probe: ForeignLayer, shift: float = 0.0) -> list[Tensor]:
    count = max(2, min(40, 4000 // max(1, math.prod(probe.shape))))
    return [(probe.input(41 + k) + shift).to(probe.dtype) for k in range(count)]


def _agreement(got: list[Tensor], expected: list[Tensor]) -> float:
    """Share of entries that are equal bit by bit."""
    equal = [(a == b).double().mean() for a, b in zip(got, expected, strict=True)]
    return float(torch.stack(equal).mean())


def read_precision(found: Evidence) -> None:
    """Fill `statistics_dtype` and `weight_cast`."""
    report, reasons, roles = found.report, found.report.reasons, found.roles
    if found.has_weight and not any(role.kind == "weight" for role in roles.values()):
        reasons["statistics_dtype"] = "the weight could not be found and set to 1"
        return
    if found.behind is not None and found.behind.name == "threshold":
        reasons["statistics_dtype"] = (
            "not read behind a threshold, which hides a part of the output"
        )
        reasons.setdefault("weight_cast", reasons["statistics_dtype"])
        return
    n, shape = found.count, found.layer.shape
    gain = math.sqrt((n - 1) / n) if report.divisor == "n-1" else 1.0
    if found.spread == "sum of squares":
        gain = 1 / math.sqrt(n)
    # what the layer computes without weight and bias, in exact arithmetic
    model = found.model.with_affine(torch.full(shape, gain), torch.zeros(shape))
    low = _half_probe(found.whole())
    if isinstance(low, str):
        reasons["statistics_dtype"] = low
        reasons.setdefault("weight_cast", low)
        return
    dtype = _statistics_dtype(low, model, found)
    if isinstance(dtype, str):
        reasons["statistics_dtype"] = dtype
    elif dtype == low.dtype:
        report.statistics_dtype = dtype
        reasons.setdefault("weight_cast", "half-precision inputs are never cast up")
    else:
        wide = _is_double(found.whole().at(torch.float32), model, found)
        report.statistics_dtype = torch.float64 if wide else torch.float32
    if "weight_cast" not in reasons:
        _read_weight_cast(found, low, model)


def _half_probe(layer: ForeignLayer) -> ForeignLayer | str:
    """A copy that returns half precision for half-precision inputs, or why there is none.

    Parameters stay in their own dtype where the layer takes that, as under autocast.
    """
    own = {p.dtype for m in layer.modules for p in m.parameters()}
    half = torch.float16 if own == {torch.float16} else torch.bfloat16
    reason = ""
    for low in (layer.fresh(), layer.at(half)):
        low.dtype = half
        try:
            got = low(low.input(40)).dtype
        except Exception as error:  # a layer may refuse a dtype in any way
            text = str(error).strip().partition("\n")[0]
            reason = f"a {_name(half)} input is refused: {type(error).__name__}: {text}"
            continue
        if got == half:
            return low
        reason = f"a {_name(half)} input gives {_name(got)}"
    return reason


def _statistics_dtype(low: ForeignLayer, model: Model, found: Evidence) -> torch.dtype | str:
    """Compare the outputs for half-precision inputs with correctly rounded ones.

    The answer is float32 for that or wider, the half dtype, or why it cannot be told.
    """
    if not _set(low, found.roles, neutral=True):
        return "the weight enters in a way that cannot be set to 1"
    half = low.dtype
    inputs = _inputs(low)
    got = [low(x).cpu() for x in inputs]
    exact = [model(x.double()) for x in inputs]
    expected = [found.finish(y.to(half)) for y in exact]
    root = math.sqrt(found.count)  # a vector of length 1 may be cast back before it is stretched
    stretched = [found.finish(((y / root).to(half).double() * root).to(half)) for y in exact]
    if max(_agreement(got, way) for way in (expected, stretched)) >= 0.97:
        return torch.float32
    worst = max(
        float((a.double() - b.double()).abs().max() / b.double().abs().max())
        for a, b in zip(got, expected, strict=True)
    )
    if worst <= 8 * torch.finfo(half).eps:
        return half
    return f"a {_name(half)} input gives outputs that differ by more than its rounding"


def _is_double(single: ForeignLayer, model: Model, found: Evidence) -> bool:
    """Whether float32 inputs far from 0 are normalized without rounding of the statistics."""
    if not _set(single, found.roles, neutral=True):
        return False
    inputs = _inputs(single, shift=1000.0)
    try:
        got = [single(x).cpu() for x in inputs]
    except Exception:  # a layer may refuse a dtype in any way
        return False
    expected = [found.finish(model(x.double()).float()) for x in inputs]
    return _agreement(got, expected) >= 0.97


def _read_weight_cast(found: Evidence, low: ForeignLayer, model: Model) -> None:
    """Whether the weight multiplies before or after the result is cast back to half precision."""
    report, roles = found.report, found.roles
    half = low.dtype
    if not _set(low, roles, neutral=False):
        report.reasons["weight_cast"] = "the weight enters in a way that cannot be set"
        return
    weight, bias = (_value(low, roles, kind) for kind in ("weight", "bias"))
    if weight is None:
        report.reasons["weight_cast"] = "no parameter was found to be the weight"
        return
    offset = next(r.offset for r in roles.values() if r.kind == "weight") or 0.0
    shift = torch.zeros(()) if bias is None else bias
    inputs = _inputs(low)
    hats = [model(x.double()) for x in inputs]
    got = [low(x).cpu() for x in inputs]
    shares = {"before": 0.0, "after": 0.0}
    # 1 + weight may itself be rounded, and a product may be rounded before the sum
    for factor in (offset + weight, (offset + weight).to(half).double()):
        early = [found.finish((h * factor + shift).to(half)) for h in hats]
        late = [h.to(half).double() * factor for h in hats]
        fused = [found.finish((p + shift).to(half)) for p in late]
        split = [found.finish((p.to(half).double() + shift).to(half)) for p in late]
        shares["before"] = max(shares["before"], _agreement(got, early))
        shares["after"] = max(shares["after"], _agreement(got, fused), _agreement(got, split))
    if shares["before"] >= 0.97 > shares["after"]:
        report.weight_cast = "before"
    elif shares["after"] >= 0.97 > shares["before"]:
        report.weight_cast = "after"
    else:
        report.reasons["weight_cast"] = (
            f"{shares['before']:.0%} of the outputs fit a weight applied before the cast and "
            f"{shares['after']:.0%} one applied after it"
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
