"""Which norm is this? An answer from the outputs alone."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from normlab.checks.fingerprint.conventions import read_affine, read_eps
from normlab.checks.fingerprint.evidence import Evidence
from normlab.checks.fingerprint.frozen import read_frozen
from normlab.checks.fingerprint.function_behind import name_function, without_function
from normlab.checks.fingerprint.gated import read_gated
from normlab.checks.fingerprint.interleaved import read_interleaved
from normlab.checks.fingerprint.naming import name_family
from normlab.checks.fingerprint.nearest import name_nearest
from normlab.checks.fingerprint.no_norms import (
    RANDOM,
    check_answers,
    describe_elementwise,
    describe_scaling,
    is_identity,
    name_measure,
    name_other_layer,
    resembles_norm,
)
from normlab.checks.fingerprint.precision import read_precision
from normlab.checks.fingerprint.report import Fingerprint
from normlab.checks.probing.arguments import Arguments, OneTensor, Wrapped
from normlab.checks.probing.groups import InterleavedGroups, find_groups, moved_outputs
from normlab.checks.probing.inputs import choose_input, sizes_of
from normlab.checks.probing.layer import ForeignLayer, NoNorm
from normlab.checks.probing.measurements import Affine, fit_affine, shortest
from normlab.checks.probing.parameters import find_roles
from normlab.checks.probing.running import find_running
from normlab.checks.probing.state import uncompiled
from normlab.norms import NORMS


def identify(
    layer: Callable[..., Any], *, shape: Sequence[int], others: Sequence[Any] = ()
) -> Fingerprint:
    """Find out by probing which norm a layer computes, and with which conventions.

    The layer is called some hundred times with inputs of this function's choosing. Neither its
    source nor its class nor its attributes are read; parameters and buffers are, and they are
    moved to see what they do. A module is copied first; mode, parameters, buffers and random
    streams are left as they were.

    Args:
        layer: a module, or a function of one tensor. Of several results, the first tensor of the
            input's shape counts.
        shape: of an input.
        others: further arguments, behind the input: a condition, a residual.

    Returns:
        a report; what cannot be decided is None there, with the reason in `.reasons`.

    Raises:
        TypeError: `layer` is a class or cannot be called, or `shape` is not a sequence of ints.
        ValueError: a size is not positive, or the layer raises at inputs of this shape.

    Conventions:
        A module is probed in training mode, so that a batch norm shows its own statistics.
        `eps_placement` "clamp" means that the root is at least the root of `eps`. What is compiled
        is probed as it is without compilation.

    Example:
        >>> found = identify(torch.nn.LayerNorm(16, eps=1e-6), shape=(4, 16))
        >>> found.family, found.eps, found.nearest_torch
        ('layer_norm', 1e-06, 'LayerNorm(16, eps=1e-06)')
    """
    shape = sizes_of(shape)
    if others and not isinstance(layer, type) and callable(layer):
        layer = OneTensor(layer, Arguments(0, (None, *others)))
    # what is compiled is the same function, and each shape and dtype would be compiled anew
    with uncompiled():
        report = _identify(layer, shape)
        if report.family is None and isinstance(layer, OneTensor):
            alone = layer.without_residual(shape)
            again = report if alone is None else _identify(alone, shape)
            if again.family is not None:
                again.notes.append("read with zeros for the argument of the input's shape")
                return again
            with ForeignLayer.open(layer, shape) as probe, contextlib.suppress(Exception):
                report = read_gated(probe) or report  # a layer may refuse an input in any way
    return report


def _identify(layer: Callable[[Tensor], Any], shape: tuple[int, ...]) -> Fingerprint:
    with ForeignLayer.open(layer, shape) as original:
        try:
            found = Evidence(original)
        except NoNorm as reason:
            return Fingerprint().undecided(str(reason))
        try:
            _fill(found)
        except NoNorm as reason:
            if isinstance(reason, InterleavedGroups):
                found.probe.assign(found.own)
                read = functools.partial(_identify, shape=shape)
                report = read_interleaved(layer, found.probe.shape[reason.axis], reason, read)
                if report is not None:
                    return report
            why = _true_reason(found.probe, str(reason))  # with parameters away from 0 and 1
            found.probe.assign(found.own)
            report = _before_function(original)
            if report is not None:
                return report
            report = found.report.undecided(why)
            if str(reason) != RANDOM:  # noise of the same size whatever comes in resembles one
                with contextlib.suppress(Exception):  # a layer may refuse an input in any way
                    report.resembles_norm = resembles_norm(found.probe)
            return report
        report = found.report
    elsewhere = _nearest_after_moving_axes(layer, shape, found)
    if elsewhere:
        report.reasons["nearest_torch"] = elsewhere
    return report


def _nearest_after_moving_axes(
    layer: Callable[[Tensor], Any], shape: tuple[int, ...], found: Evidence
) -> str:
    """Torch's layer for the same input in the order of axes that torch expects; empty if none."""
    record, ndim = NORMS.get(str(found.report.family)), len(shape)
    over = found.report.reduced_axes or ()
    if record is None or found.report.nearest_torch is not None or found.behind is not None:
        return ""
    if record.trailing and len(over) == 1 and over[0] not in (0, ndim - 1):
        axis, to = over[0], -1
    elif found.channel not in (None, 1):
        axis, to = found.channel, 1
    else:
        return ""

    def moved(layer: Callable[[Tensor], Any], x: Tensor) -> Any:
        return layer(x.movedim(to, axis)).movedim(axis, to)

    there = tuple(torch.empty(shape, device="meta").movedim(axis, to).shape)
    again = _identify(Wrapped(layer, moved), there)
    if again.family is None or again.nearest_torch is None:
        return ""
    return (
        f"torch expects the axes in another order: it is {again.nearest_torch} of "
        f"x.movedim({axis}, {to}), whose output goes back by .movedim({to}, {axis})"
    )


def _before_function(original: ForeignLayer) -> Fingerprint | None:
    """The norm in front of a function at the end of the layer; None where there is none."""
    own, partly = original.values(), None
    with contextlib.suppress(Exception):  # a layer may refuse an input in any way
        for probe in without_function(original, choose_input(original)):
            found = Evidence(probe)
            try:
                found.randomize()
                found.behind = name_function(found.probe)
                if found.behind is not None:
                    _fill(found)
            except NoNorm:
                continue
            finally:
                original.assign(own)
            if found.behind is not None:
                found.report.followed_by = found.behind.name
                if found.report.family in NORMS:
                    return found.report
                if found.report.family is None:
                    partly = partly or found.report
    return partly


def _true_reason(probe: ForeignLayer, reason: str) -> str:
    """Why it is no norm: a name for it, or that nothing is normalized, before what was seen."""
    named = "" if "random" in reason else name_other_layer(probe)
    if named:
        return named
    with contextlib.suppress(Exception):  # a layer may refuse an input in any way
        said = describe_scaling(probe)
        if said and reason != RANDOM:
            return said
    return reason


def _fill(found: Evidence) -> None:
    report, probe = found.report, found.probe
    if probe.shape != found.real_shape:
        report.notes.append(
            f"probed with inputs of shape {probe.shape}, which show more or cost less"
        )
    check_answers(probe)
    found.randomize()
    if is_identity(probe):  # as a frozen batch norm may be with the numbers that it has at first
        if read_frozen(found):
            return
        report.family, report.nearest_torch = "identity", "Identity()"
        report.reduced_axes, report.affine, report.running_statistics = (), False, False
        report.undecided("the output is the input: nothing is normalized")
        return
    found.groups = find_groups(probe)
    if not found.groups.reduced:
        report.reduced_axes = ()
        if read_frozen(found):
            return
        raise NoNorm(describe_elementwise(probe))
    report.count = found.count
    found.affine = _fit(found)
    report.reduced_axes, report.centered = found.groups.reduced, found.affine.centered
    found.roles = find_roles(probe, found.groups, found.affine)
    read_affine(found)
    read_eps(found)
    _verify(found)
    _check_memory(found)
    read_precision(found)
    _read_evaluation(found)
    _name(found)
    name_nearest(found)


def _fit(found: Evidence) -> Affine:
    scale = 1e8 if found.probe.dtype != torch.float16 else 30.0
    affine = fit_affine(found.probe, found.groups, scale=scale)
    if not affine.error <= (2e-5 if found.exact else 2e-2):
        raise NoNorm(_why_not(found, affine))
    return affine


def _why_not(found: Evidence, affine: Affine) -> str:
    x = found.probe.input(8) + 0.5
    f = found.probe.measure
    ratio = float(f(64 * x).abs().max() / f(x).abs().max())
    start = f"inputs share an effect along axes {found.groups.reduced}, but "
    if not 0.5 < ratio < 2:
        return start + f"64 times the input gives {ratio:.3g} times the output: it is no norm"
    mixed = fit_affine(found.probe, found.groups, mixed=True)
    if mixed.error <= 2e-5:
        return start + (
            "the mean is subtracted in the numerator and not in the root"
            if mixed.centered
            else "the mean is subtracted in the root and not in the numerator: x / std"
        )
    measure = name_measure(found.probe, found.groups)
    if measure:
        return start + f"they are divided by {measure}: no named norm has this measure of spread"
    if affine.error < 2e-2:
        return start + (
            "the output agrees with a norm only to within "
            f"{affine.error:.1g}; in half precision inside the layer no more can be seen"
        )
    return start + (
        "the output is not a factor times the standardized input plus a summand (misfit "
        f"{affine.error:.1g}): something else is mixed in, or this is another kind of norm"
    )


def _verify(found: Evidence) -> None:
    """Compare the outputs with the model, also where eps shows."""
    eps, probe, model = found.model.eps, found.probe, found.model
    small = eps.value if eps.placement == "outside" else math.sqrt(eps.value)
    for k, scale in enumerate([1.0, *([small / 2] if small else [])]):
        x = scale * (probe.input(71 + k) + 0.5)
        x = x.to(probe.dtype).double()
        got, expected = probe.measure(x), model(x)
        limit = max(1e-7, 200 * found.affine.error) if found.exact else 3e-2
        if not float((got - expected).abs().max()) <= limit * float(expected.abs().max()):
            raise NoNorm(
                f"the outputs at inputs of size {scale:.0e} are not those of the norm that "
                "larger and smaller inputs point to"
            )


def _read_evaluation(found: Evidence) -> None:
    report, probe = found.report, found.probe
    x = probe.input(81) + 0.5
    train, evaluated = (probe.measure(x, training=mode) for mode in (True, False))
    if torch.allclose(train, evaluated, rtol=1e-6, atol=1e-9):
        report.running_statistics = False
        return
    cell = tuple(size // 2 for size in probe.shape)
    moved = moved_outputs(probe, cell, training=False)
    if int(moved.sum()) == 1 and bool(moved[cell]):
        report.running_statistics = True
        running = find_running(found.layer.at(probe.dtype))
        if running and (running.momentum is not None or running.is_average):
            found.running = running
    else:
        report.reasons["running_statistics"] = (
            "evaluation gives other outputs than training, but not those of fixed statistics"
        )


def _check_memory(found: Evidence) -> None:
    """Require that a first batch in training leaves no trace in what the next one gives."""
    if 0 not in found.reduced or not found.probe.copies:
        return
    x = found.probe.input(91)
    used = found.probe.fresh()
    used(found.probe.input(92), keep=True)
    once = used.measure(x)
    if not torch.allclose(once, found.probe.measure(x), rtol=1e-3, atol=1e-3):
        used(found.probe.input(93), keep=True)
        if not torch.equal(used.measure(x), once):
            raise NoNorm("in training, too, it normalizes with statistics that each call moves on")
        raise NoNorm(
            "its first call in training sets its own parameters from the input, and later calls "
            "take no statistics (a data-dependent initialization, as of ActNorm)"
        )


def _count_in_eps(found: Evidence) -> None:
    """What was read as an eps of the mean square, as one of the sum where the norm takes that."""
    report = found.report
    record = NORMS.get(str(report.family))
    if report.eps and record is not None and record.spread == "sum of squares":
        n = float(found.count)
        n = math.sqrt(n) if report.eps_placement == "outside" else n
        report.eps = shortest(report.eps * n, max(found.eps_doubt, 1e-9))


def _name(found: Evidence) -> None:
    report, groups, shape = found.report, found.groups, found.real_shape
    family = name_family(found)
    if family.startswith("none: "):
        report.reasons["family"] = family.removeprefix("none: ")
    else:
        report.family = family
        _count_in_eps(found)
    if report.family in NORMS and groups.split is not None:
        report.num_groups = shape[groups.split] // groups.block
    elif report.family not in NORMS or not NORMS[report.family].grouped:
        report.reasons["num_groups"] = "only group norm has groups"
    else:
        report.num_groups = 1 if 1 in groups.reduced else shape[1]
