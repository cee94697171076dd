"""Which norm is this? An answer from the outputs alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from normlab.fingerprint.behavior import check_answers, describe_elementwise, is_identity
from normlab.fingerprint.conventions import ReadEps, read_affine, read_eps
from normlab.fingerprint.naming import name_family
from normlab.fingerprint.nearest import Findings, name_nearest
from normlab.fingerprint.precision import read_precision
from normlab.fingerprint.report import Fingerprint
from normlab.fingerprint.torch_layers import Tracking, read_tracking
from normlab.probing.groups import Groups, find_groups, moved_outputs
from normlab.probing.measurements import Affine, Eps, Model, fit_affine
from normlab.probing.opening import choose_probe, open_probe
from normlab.probing.parameters import allowance, find_roles, varying_axes
from normlab.probing.probe import NoNorm, Probe

__all__ = ["identify"]


def identify(layer: Callable[[Tensor], Any], *, shape: Sequence[int]) -> Fingerprint:
    """Find out by probing which norm a layer computes, and with which conventions.

    The layer is called some hundred times with inputs of this function's choosing. Neither its
    source nor its class nor its attributes are read; parameters and buffers are, and they are
    moved to see what they do. A module is copied first; mode, parameters, buffers and random
    streams are left as they were.

    Args:
        layer: a module, or a function of one tensor.
        shape: of an input.

    Returns:
        a report; what cannot be decided is None there, with the reason in `.reasons`.

    Raises:
        TypeError: `layer` is a class or cannot be called, or `shape` is not a sequence of ints.
        ValueError: a size is not positive, or the layer raises at inputs of this shape.

    Conventions:
        A module is probed in training mode, so that a batch norm shows its own statistics.
        `eps_placement` "clamp" means that the root is at least the root of `eps`.

    Example:
        >>> found = identify(torch.nn.LayerNorm(16, eps=1e-6), shape=(4, 16))
        >>> found.family, found.eps, found.nearest_torch
        ('layer_norm', 1e-06, 'LayerNorm(16, eps=1e-06)')
    """
    shape = _checked_shape(shape)
    report = Fingerprint()
    with open_probe(layer, shape) as original:
        try:
            _Identification(original, report).run()
        except NoNorm as reason:
            report.undecided(str(reason))
    return report


def _checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(shape)
    except TypeError:
        sizes = ()
    if not sizes or any(isinstance(s, bool) or not isinstance(s, int) for s in sizes):
        raise TypeError(f"shape: got {shape!r}; expected the sizes of an input, such as (4, 16)")
    if min(sizes) < 1:
        raise ValueError(f"shape: got {shape!r}; sizes must be positive")
    return sizes


class _Identification:
    """The steps of one identification, and what each found."""

    def __init__(self, original: Probe, report: Fingerprint):
        self.real_shape = original.shape
        self.report = report
        self.probe = choose_probe(original)
        self.layer = original.with_shape(self.probe.shape)

    def run(self) -> None:
        """Fill the report."""
        r = self.report
        if self.probe.shape != self.real_shape:
            r.notes.append(
                f"probed with inputs of shape {self.probe.shape}, which show more or cost less"
            )
        check_answers(self.probe)
        self.own = self.probe.values()
        self.probe.randomize()
        self.random = self.probe.values()
        if is_identity(self.probe):
            r.family, r.nearest_torch = "identity", "Identity()"
            r.reduced_axes, r.affine, r.running_statistics = (), False, False
            r.undecided("the output is the input: nothing is normalized")
            return
        groups = self._groups()
        self.groups = groups
        affine = self._affine()
        r.reduced_axes, r.centered = groups.reduced, affine.centered
        self.roles = find_roles(self.probe, groups, affine)
        n = groups.count(self.probe.shape)
        has_weight = read_affine(affine, self.roles.values(), n, self.probe.shape, r)
        eps = read_eps(self.probe, groups, affine, r)
        self._verify(affine, eps.found)
        read_precision(self.layer, self.model, self.roles, has_weight, r)
        self._name(affine, eps, self._evaluation(), has_weight)

    def _groups(self) -> Groups:
        groups = find_groups(self.probe)
        if not groups.reduced:
            raise NoNorm(describe_elementwise(self.probe))
        return groups

    def _affine(self) -> Affine:
        scale = 1e8 if self.probe.dtype != torch.float16 else 30.0
        affine = fit_affine(self.probe, self.groups, scale=scale)[0]
        allowed = 2e-5 if self.probe.dtype in (torch.float64, torch.float32) else 2e-2
        if not affine.error <= allowed:
            raise NoNorm(self._why_not(affine))
        return affine

    def _why_not(self, affine: Affine) -> str:
        x = self.probe.input(8) + 0.5
        f = self.probe.measure
        axes = self.groups.reduced
        ratio = float(f(64 * x).abs().max() / f(x).abs().max())
        start = f"inputs share an effect along axes {axes}, but "
        if not 0.5 < ratio < 2:
            return start + f"64 times the input gives {ratio:.3g} times the output: it is no norm"
        mixed = fit_affine(self.probe, self.groups, mixed=True)[0]
        if mixed.error <= 2e-5:
            return start + (
                "the mean is subtracted in the numerator and not in the root"
                if mixed.centered
                else "the mean is subtracted in the root and not in the numerator"
            )
        if affine.error < 2e-2:
            return start + (
                "the output agrees with a norm only to within "
                f"{affine.error:.1g}; in half precision inside the layer no more can be seen"
            )
        return start + (
            "the output is not a factor times the standardized input plus a summand (misfit "
            f"{affine.error:.1g}): something else is mixed in, or this is another kind of norm"
        )

    def _verify(self, affine: Affine, eps: Eps | None) -> None:
        self.model = Model(self.groups, affine, eps or Eps(0.0, None, 0.0))
        small = math.sqrt(self.model.eps.value) if eps and eps.placement != "outside" else 0.0
        small = eps.value if eps and eps.placement == "outside" else small
        scales = [1.0, *([small / 2] if small else [])]
        exact = self.probe.dtype in (torch.float64, torch.float32)
        for k, scale in enumerate(scales):
            x = scale * (self.probe.input(71 + k) + 0.5)
            x = x.to(self.probe.dtype).double()
            got, expected = self.probe.measure(x), self.model(x)
            limit = max(1e-7, 200 * affine.error) if exact else 3e-2
            if not float((got - expected).abs().max()) <= limit * float(expected.abs().max()):
                raise NoNorm(
                    f"the outputs at inputs of size {scale:.0e} are not those of the norm that "
                    "larger and smaller inputs point to"
                )

    def _evaluation(self) -> Tracking | None:
        r = self.report
        x = self.probe.input(81) + 0.5
        train, evaluated = (self.probe.measure(x, training=mode) for mode in (True, False))
        if torch.allclose(train, evaluated, rtol=1e-6, atol=1e-9):
            r.running_statistics = False
            return None
        cell = tuple(size // 2 for size in self.probe.shape)
        moved = moved_outputs(self.probe, cell, training=False)
        if int(moved.sum()) == 1 and bool(moved[cell]):
            r.running_statistics = True
            return read_tracking(self.layer.at(self.probe.dtype))
        r.reasons["running_statistics"] = (
            "evaluation gives other outputs than training, but not those of fixed statistics"
        )
        return None

    def _name(
        self, affine: Affine, eps: ReadEps, tracking: Tracking | None, has_weight: bool
    ) -> None:
        r = self.report
        family = name_family(self.probe, self.groups, affine.centered, self._parameter_axes(affine))
        if family.startswith("none: "):
            r.reasons["family"] = family.removeprefix("none: ")
        else:
            r.family = family
        if r.family == "group_norm":
            split = self.groups.split
            r.num_groups = 1 if split is None else self.real_shape[split] // self.groups.block
            if split is None and 1 not in self.groups.reduced:
                r.num_groups = self.real_shape[1]
        else:
            r.reasons["num_groups"] = "only group norm has groups"
        found = Findings(
            self.layer,
            self.probe,
            self.real_shape,
            self.groups,
            affine,
            self.own,
            self.random,
            eps,
            has_weight,
            float(affine.summand.abs().max()) > allowance(affine.error),
            tracking,
        )
        name_nearest(found, r)

    def _parameter_axes(self, affine: Affine) -> tuple[int, ...]:
        tolerance = allowance(affine.error)
        values = (affine.factor, affine.summand)
        axes = [varying_axes(v, tolerance * float(v.abs().max())) for v in values]
        return tuple(sorted({*axes[0], *axes[1]}))
