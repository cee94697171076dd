"""From the axes of the statistics and of the weight to the name of a norm."""

from __future__ import annotations

from normlab.fingerprint.evidence import Evidence
from normlab.norms import NORMS, reduced_axes
from normlab.probing.groups import find_groups
from normlab.probing.layer import ForeignLayer
from normlab.probing.parameters import varying_axes


def name_family(found: Evidence) -> str:
    """The family, or "none: " and the reason.

    Where axes and weight leave two names, a call with another shape decides: a layer norm keeps
    its normalized shape, a group or instance norm takes any number of positions. Factors that vary
    along an axis along which no parameter does come from a condition; statistics alone name the
    norm then.
    """
    carried = _carried(found)
    known = {axis for role in found.roles.values() for axis in role.axes}
    usual = _by_axes(found, carried)
    if usual.startswith("none: ") or (carried - known and not carried <= found.reduced):
        named = _by_record(found, carried)
        if named:
            return named
        alone = _modulated(found, carried) if carried - known else ""
        if alone:
            found.report.modulated = True
            return alone
    return usual


def _carried(found: Evidence) -> set[int]:
    """Axes along which factors or summands vary."""
    affine = found.affine
    varying = (
        varying_axes(values, found.tolerance * float(values.abs().max()))
        for values in (affine.factor, affine.summand)
    )
    return {axis for axes in varying for axis in axes}


def _modulated(found: Evidence, carried: set[int]) -> str:
    """The norm whose factors come from a condition; empty where only a usual weight is seen."""
    over, ndim = found.reduced, len(found.probe.shape)
    if found.groups.split is None and 0 not in over and found.affine.centered:
        per_channel = ndim > 2 and over == set(range(2, ndim))
        if per_channel and 1 in carried and not (ndim == 3 and carried <= over):
            return "" if carried <= {1} else "instance_norm"
    usual = carried <= ({1} if 0 in over or found.groups.split is not None else over)
    name = "" if usual else _by_axes(found, set())
    return "" if name.startswith("none: ") else name


def _by_record(found: Evidence, carried: set[int]) -> str:
    """A norm whose record has these cells, this spread and these parameters; empty if none has."""
    ndim, scalar = len(found.probe.shape), found.is_scalar
    for name, record in NORMS.items():
        if record.grouped or record.spread is None or found.groups.split is not None:
            continue
        if (record.centered, record.spread) != (found.affine.centered, found.spread):
            continue
        sizes = range(1, ndim) if record.trailing else (1,)
        allowed = {
            "channel": {1},
            "shape": found.reduced,
            "scalar": set[int](),
            "none": set[int](),
        }[record.parameters]
        fits = carried <= allowed and scalar == (record.parameters == "scalar" and found.has_weight)
        # whichever holds the features; those of torch were looked for by their axes
        one_axis = record.torch is None and record.trailing and len(found.reduced) == 1
        one_axis = one_axis and 0 not in found.reduced
        if fits and (
            one_axis
            or any(set(reduced_axes(name, ndim, normalized_ndim=n)) == found.reduced for n in sizes)
        ):
            return name
    return ""


def _by_axes(found: Evidence, carried: set[int]) -> str:
    probe, groups, affine = found.probe, found.groups, found.affine
    ndim, centered = len(probe.shape), affine.centered
    over = found.reduced
    if found.is_scalar:
        return (
            "none: one number multiplies all entries, as the weight of ScaleNorm does, but what it "
            "multiplies is not the input over the root of its sum of squares"
        )
    if found.spread == "sum of squares":
        return (
            "none: the input is divided by the root of the sum of squares, not of their mean: "
            "an L2 normalization"
        )
    if groups.split is not None:
        positions = set(range(1, ndim)) - {groups.split}
        if centered and over == positions | {groups.split} and carried <= {groups.split}:
            return "group_norm"
        return "none: blocks of one axis share statistics, but not as those of a group norm do"
    if 0 in over:
        kept = set(range(ndim)) - over
        if ndim > 1 and centered and len(kept) == 1 and carried <= kept:
            return "batch_norm"
        if ndim > 1 or not carried <= over:
            what = "mean and variance" if centered else "mean square"
            return f"none: one {what} over axes {tuple(sorted(over))}; no named norm takes these"
    trailing = over == set(range(min(over), ndim))
    if not centered:
        if (trailing or len(over) == 1) and (not carried or carried & over):
            return "rms_norm"
        return "none: a mean square over these axes with these weights has no name"
    if trailing and ndim > 1:
        return _trailing(probe, over, carried)
    if trailing:
        return "layer_norm"
    if len(over) == 1 and (not carried or carried & over):
        return "layer_norm"
    if over == set(range(1, ndim - 1)) and carried <= {ndim - 1}:
        return "instance_norm"
    return f"none: statistics over axes {tuple(sorted(over))} with these weights have no name"


def _trailing(probe: ForeignLayer, over: set[int], carried: set[int]) -> str:
    shape, ndim = probe.shape, len(probe.shape)
    per_channel = {*range(1, ndim)} == over or {*range(2, ndim)} == over
    other = "group_norm" if 1 in over else "instance_norm"
    if carried and not carried & over:
        if per_channel and carried == {1}:
            return other
        return "none: the weight varies along axes that are not normalized"
    if not per_channel:
        return "layer_norm"
    if 1 in over and ndim > 2 and carried == {1}:
        return "group_norm"
    if carried and not (1 in over and ndim == 2):
        return "layer_norm"
    if ndim == 2 or (ndim == 3 and 1 not in over):  # one more axis of positions
        found = _reduced(probe, (*shape, 3))
        if found is not None:
            return other if found == over | {ndim} else "layer_norm"
        if ndim == 2:
            return "layer_norm"
    found = _reduced(probe, (*shape[:-1], shape[-1] + 1))
    return other if found == over else "layer_norm"


def _reduced(probe: ForeignLayer, shape: tuple[int, ...]) -> set[int] | None:
    """Reduced axes at another shape; None where the layer does not take it."""
    other = probe.with_shape(shape)
    try:
        return set(find_groups(other).reduced) if other.accepts(shape) else None
    except Exception:  # a layer may refuse a shape in any way
        return None
