"""From the axes of the statistics and of the weight to the norm whose record has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from normlab.checks.fingerprint.evidence import Evidence
from normlab.checks.probing.groups import find_groups
from normlab.checks.probing.layer import ForeignLayer
from normlab.checks.probing.parameters import varying_axes
from normlab.norms import NORMS, Norm, parameter_axes, reduced_axes


@dataclass(frozen=True)
class _Arrangement:
    """A norm with its channels on one of the axes of an input."""

    name: str
    over: frozenset[int]  #: axes that share statistics
    weight: frozenset[int]  #: axes along which its weight varies
    channel: int | None = None  #: axis of the channels; None of a norm of trailing axes
    usual: bool = True  #: as the record has it, and not with the channels elsewhere

    @property
    def record(self) -> Norm:
        return NORMS[self.name]


def name_family(found: Evidence) -> str:
    """The family, or "none: " and the reason.

    Factors that vary along an axis along which no parameter does come from a condition; statistics
    alone name the norm then.
    """
    carried = _carried(found)
    name = _name(found, carried)
    if name:
        return name
    if carried - {axis for role in found.roles.values() for axis in role.axes}:
        alone = _modulated(found, carried)
        if alone:
            found.report.modulated = True
            return alone
    # a weight that varies along further axes, too, is one of a layer or RMS norm still
    names = [a.name for a in _arrangements(found) if carried & a.over]
    names = [name for name in names if NORMS[name].parameters == "shape"]
    if names and not found.is_scalar:
        return names[0]
    return _variant(found, carried) or f"none: {_reason(found)}"


def _carried(found: Evidence) -> set[int]:
    """Axes along which factors or summands vary."""
    affine = found.affine
    varying = (
        varying_axes(values, found.tolerance * float(values.abs().max()))
        for values in (affine.factor, affine.summand)
    )
    return {axis for axes in varying for axis in axes}


def _arrangements(found: Evidence) -> Iterator[_Arrangement]:
    """Norms over the cells that share statistics here, with this spread."""
    split = found.groups.split
    for name, record in NORMS.items():
        if "identify" in record.absent:
            continue
        if (record.centered, record.spread) != (found.affine.centered, found.spread):
            continue
        for a in _layouts(name, len(found.probe.shape)):
            grouped = split is not None and record.grouped and split == a.channel
            if a.over == found.reduced and (split is None or grouped):
                yield a


def _layouts(name: str, ndim: int) -> Iterator[_Arrangement]:
    if NORMS[name].trailing:
        for n in range(1, max(ndim, 2)):
            over = frozenset(reduced_axes(name, ndim, normalized_ndim=n))
            weight = frozenset(parameter_axes(name, ndim, normalized_ndim=n))
            yield _Arrangement(name, over, weight)
        for axis in range(1, ndim - 1):  # features that do not come last
            weight = frozenset({axis} if NORMS[name].parameters == "shape" else ())
            yield _Arrangement(name, frozenset({axis}), weight, usual=False)
        return
    for channel in range(1, ndim):
        order = [0, channel, *(axis for axis in range(1, ndim) if axis != channel)]
        over = frozenset(order[axis] for axis in _reduced_by(name, ndim))
        weight = frozenset(order[axis] for axis in parameter_axes(name, ndim))
        yield _Arrangement(name, over, weight, channel, channel == 1)


def _reduced_by(name: str, ndim: int) -> set[int]:
    """Axes of the input that a channel norm reduces; groups of channels are on axis 1."""
    if NORMS[name].grouped:
        return {axis - 1 for axis in reduced_axes(name, ndim + 1)}
    return set(reduced_axes(name, ndim))


def _name(found: Evidence, carried: set[int]) -> str:
    """The norm of these cells whose weight may vary as it does here; empty if none is.

    Where several are, the record's own layout comes before another, then the weight that varies
    along the fewest axes, and then a call with another shape decides.
    """
    scalar = found.is_scalar
    fits = [
        a
        for a in _arrangements(found)
        if carried <= a.weight and scalar == (a.record.parameters == "scalar" and found.has_weight)
    ]
    usual = [a for a in fits if a.usual] or fits
    if carried:
        fewest = min((len(a.weight) for a in usual), default=0)
        usual = [a for a in usual if len(a.weight) == fewest]
    names = dict.fromkeys(a.name for a in usual)
    name = _ask(found, names) if len(names) > 1 else next(iter(names), "")
    found.channel = next((a.channel for a in usual if a.name == name), None)
    if not carried and found.reduced == {1} and len(found.probe.shape) == 3:
        found.report.notes.append(
            "of inputs (N, C, L) this is a layer norm over channels, of inputs (N, T, C) an "
            "instance norm over time: without a weight they are the same"
        )
    return name


def _ask(found: Evidence, names: dict[str, None]) -> str:
    """Of several norms, the one that reduces the same axes as the layer at another shape.

    A norm of trailing axes keeps its normalized shape, one of channels takes any number of
    positions.
    """
    probe, ndim = found.probe, len(found.probe.shape)
    channel = [name for name in names if not NORMS[name].trailing]
    trailing = [name for name in names if NORMS[name].trailing]
    more = ndim == 2 or (ndim == 3 and 1 not in found.reduced)
    shape = (*probe.shape, 3) if more else (*probe.shape[:-1], probe.shape[-1] + 1)
    over = _reduced(probe, shape)
    if over is None and more and ndim > 2:
        over = _reduced(probe, shape := (*probe.shape[:-1], probe.shape[-1] + 1))
    there = [name for name in channel if over == _reduced_by(name, len(shape))]
    return (there + trailing + channel)[0]


def _variant(found: Evidence, carried: set[int]) -> str:
    """A norm of parts of its usual group, which the report names; empty if there is none.

    Groups of channels of one position or one frame, and blocks of the features of an RMS norm.
    """
    over, split, ndim = found.reduced, found.groups.split, len(found.probe.shape)
    if 0 in over or found.spread != "mean square":
        return ""
    if found.is_scalar:
        names = [a.name for a in _arrangements(found) if a.record.parameters == "shape"]
        found.report.variant = "with one number as its weight" if names else None
        return next(iter(names), "")
    if not found.affine.centered:
        if split is None and carried and not carried & over:
            axes = ", ".join(map(str, sorted(carried)))
            found.report.variant = f"with one number for each index of axis {axes} as its weight"
            rms = [a.name for a in _arrangements(found) if a.record.parameters == "shape"]
            return next(iter(rms), "")
        if split is None or over != {split} or not carried <= {split}:
            return ""
        found.report.variant = f"in blocks of {found.groups.block} along axis {split}"
        return "rms_norm"
    for channel in (1, ndim - 1) if split is None else (split,):
        apart = sorted(set(range(1, ndim)) - over - {channel})
        if apart and carried <= {channel} and (split is not None or over - {channel}):
            axes = f"axis {apart[0]}" if len(apart) == 1 else f"axes {tuple(apart)}"
            found.report.variant = f"of each index of {axes} by itself"
            return "group_norm" if channel in over else "instance_norm"
    return ""


def _modulated(found: Evidence, carried: set[int]) -> str:
    """The norm whose factors come from a condition; empty where only a usual weight is seen."""
    over, ndim = found.reduced, len(found.probe.shape)
    if found.groups.split is None and 0 not in over and found.affine.centered:
        per_channel = ndim > 2 and over == set(range(2, ndim))
        if per_channel and 1 in carried and not (ndim == 3 and carried <= over):
            return "" if carried <= {1} else "instance_norm"
    usual = carried <= ({1} if 0 in over or found.groups.split is not None else over)
    return "" if usual else _name(found, set())


def _reason(found: Evidence) -> str:
    """Why no norm has these cells and this weight."""
    over, ndim = found.reduced, len(found.probe.shape)
    if found.is_scalar:
        return (
            "one number multiplies all entries, as the weight of ScaleNorm does, but what it "
            "multiplies is not the input over the root of its sum of squares"
        )
    if found.spread == "sum of squares":
        return (
            "the input is divided by the root of the sum of squares, not of their mean: "
            "an L2 normalization"
        )
    if found.groups.split is not None:
        return "blocks of one axis share statistics, but not as those of a group norm do"
    if over == set(range(ndim)) and found.affine.centered:
        return (
            "a graph layer norm: one mean and variance of all entries, those of all rows together, "
            "as of the nodes of one graph"
        )
    if 0 in over:
        what = "mean and variance" if found.affine.centered else "mean square"
        return f"one {what} over axes {tuple(sorted(over))}; no named norm takes these"
    if not found.affine.centered:
        return "a mean square over these axes with these weights has no name"
    if over == set(range(min(over), ndim)):
        return "the weight varies along axes that are not normalized"
    return f"statistics over axes {tuple(sorted(over))} with these weights have no name"


def _reduced(probe: ForeignLayer, shape: tuple[int, ...]) -> set[int] | None:
    """Reduced axes at another shape; None where the layer does not take it."""
    other = probe.with_shape(shape)
    try:
        return set(find_groups(other).reduced) if other.accepts(shape) else None
    except Exception:  # a layer may refuse a shape in any way
        return None
