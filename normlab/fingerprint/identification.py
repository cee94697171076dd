"""Which norm is this? An answer from the outputs alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from normlab.fingerprint.conventions import ReadEps, read_affine, read_eps
from normlab.fingerprint.entrance import (
    NoNorm,
    check_answers,
    choose_subject,
    describe_elementwise,
    is_identity,
)
from normlab.fingerprint.naming import name_family
from normlab.fingerprint.nearest import Findings, name_nearest
from normlab.fingerprint.precision import read_precision
from normlab.fingerprint.report import Fingerprint
from normlab.fingerprint.torch_layers import Running, find_running
from normlab.probing.groups import Groups, NotGroups, find_groups, make_input, moved_outputs
from normlab.probing.measurements import (
    Affine,
    Eps,
    Model,
    fit_affine,
)
from normlab.probing.parameters import allowance, find_roles, varying_axes
from normlab.probing.probe import Subject, open_subject

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
    with open_subject(layer) as original:
        try:
            _Probe(original, shape, report).run()
        except (NoNorm, NotGroups) as reason:
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


class _Probe:
    """The steps of one identification, and what each found."""

    def __init__(self, original: Subject, shape: tuple[int, ...], report: Fingerprint):
        self.original = original
        self.real_shape = shape
        self.report = report
        self.subject, self.shape = choose_subject(original, shape)

    def run(self) -> None:
        """Fill the report."""
        r = self.report
        if self.shape != self.real_shape:
            r.notes.append(
                f"probed with inputs of shape {self.shape}, which show more or cost less"
            )
        check_answers(self.subject, self.shape)
        self.own = self.subject.values()
        self.subject.randomize()
        self.random = self.subject.values()
        if is_identity(self.subject, self.shape):
            r.family, r.nearest_torch = "identity", "Identity()"
            r.reduced_axes, r.affine, r.running_statistics = (), False, False
            r.undecided("the output is the input: nothing is normalized")
            return
        groups = self._groups()
        self.groups = groups
        affine = self._affine()
        r.reduced_axes, r.centered = groups.reduced, affine.centered
        self.roles = find_roles(self.subject, self.shape, groups, affine)
        n = groups.count(self.shape)
        has_weight = read_affine(affine, self.roles.values(), n, self.shape, r)
        eps = read_eps(self.subject, self.shape, groups, affine, r)
        self._verify(affine, eps.found)
        read_precision(self.original, self.shape, self.model, self.roles, has_weight, r)
        running = self._evaluation()
        self._name(affine, eps, running, has_weight)

    def _groups(self) -> Groups:
        groups = find_groups(self.subject, self.shape)
        if not groups.reduced:
            raise NoNorm(describe_elementwise(self.subject, self.shape))
        return groups

    def _affine(self) -> Affine:
        scale = 1e8 if self.subject.dtype != torch.float16 else 30.0
        affine = fit_affine(self.subject, self.shape, self.groups, scale=scale)[0]
        allowed = 2e-5 if self.subject.dtype in (torch.float64, torch.float32) else 2e-2
        if not affine.error <= allowed:
            raise NoNorm(self._why_not(affine))
        return affine

    def _why_not(self, affine: Affine) -> str:
        x = make_input(self.shape, 8) + 0.5
        f = self.subject.measure
        axes = self.groups.reduced
        ratio = float(f(64 * x).abs().max() / f(x).abs().max())
        start = f"inputs share an effect along axes {axes}, but "
        if not 0.5 < ratio < 2:
            return start + f"64 times the input gives {ratio:.3g} times the output: it is no norm"
        mixed = fit_affine(self.subject, self.shape, self.groups, mixed=True)[0]
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
        exact = self.subject.dtype in (torch.float64, torch.float32)
        for k, scale in enumerate(scales):
            x = scale * (make_input(self.shape, 71 + k) + 0.5)
            x = x.to(self.subject.dtype).double()
            got, expected = self.subject.measure(x), self.model(x)
            limit = max(1e-7, 200 * affine.error) if exact else 3e-2
            if not float((got - expected).abs().max()) <= limit * float(expected.abs().max()):
                raise NoNorm(
                    f"the outputs at inputs of size {scale:.0e} are not those of the norm that "
                    "larger and smaller inputs point to"
                )

    def _evaluation(self) -> Running | None:
        r = self.report
        x = make_input(self.shape, 81) + 0.5
        train, evaluated = (self.subject.measure(x, training=mode) for mode in (True, False))
        if torch.allclose(train, evaluated, rtol=1e-6, atol=1e-9):
            r.running_statistics = False
            return None
        cell = tuple(size // 2 for size in self.shape)
        moved = moved_outputs(self.subject, self.shape, cell, training=False)
        if int(moved.sum()) == 1 and bool(moved[cell]):
            r.running_statistics = True
            return find_running(self.original.at(self.subject.dtype), self.shape)
        r.reasons["running_statistics"] = (
            "evaluation gives other outputs than training, but not those of fixed statistics"
        )
        return None

    def _name(
        self, affine: Affine, eps: ReadEps, running: Running | None, has_weight: bool
    ) -> None:
        r = self.report
        family = name_family(
            self.subject, self.shape, self.groups, affine.centered, self._parameter_axes(affine)
        )
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
            self.original,
            self.subject.dtype,
            self.shape,
            self.real_shape,
            self.groups,
            affine,
            self.own,
            self.random,
            eps.value,
            eps.doubt,
            eps.follows_dtype,
            has_weight,
            float(affine.summand.abs().max()) > allowance(affine.error),
            running,
        )
        name_nearest(found, r)

    def _parameter_axes(self, affine: Affine) -> tuple[int, ...]:
        tolerance = allowance(affine.error)
        values = (affine.factor, affine.summand)
        axes = [varying_axes(v, tolerance * float(v.abs().max())) for v in values]
        return tuple(sorted({*axes[0], *axes[1]}))
