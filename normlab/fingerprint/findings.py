"""One identification: the layer, and what was measured so far."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.fingerprint.following import Following
from normlab.fingerprint.report import Fingerprint
from normlab.probing.groups import Groups
from normlab.probing.measurements import Affine, Eps, Model
from normlab.probing.opening import choose_probe
from normlab.probing.parameters import Role, allowance
from normlab.probing.probe import Probe
from normlab.probing.running import Running


class Findings:
    """Filled step by step, by one function a field.

    Attributes:
        report: for the caller.
        real_shape: that was asked about.
        probe: in the dtype of the probing, with random parameters.
        layer: with parameters of their own dtype, and the shape of the probing.
        own: parameters as they came.
        random: parameters as they were randomized.
        groups: cells that share statistics.
        affine: fit at large inputs.
        roles: what each parameter does.
        has_weight: whether there are factors.
        eps: in the dtype of the probing, for a mean square with divisor n; None where it could
            not be told.
        eps_value: with the layer's own divisor (n, where that is unknown), in float32 where eps
            follows the dtype.
        eps_doubt: relative uncertainty of `eps_value`.
        eps_follows_dtype: whether float32 and float64 have different ones.
        running: running statistics that move as torch's do.
        spread: "mean square", or "sum of squares" where n is left out.
        is_scalar: the weight is one number for all.
        following: function that follows the norm, which is taken away from `probe` and `layer`.
    """

    groups: Groups
    affine: Affine
    roles: dict[str, Role]
    has_weight: bool

    def __init__(self, original: Probe, report: Fingerprint):
        self.report = report
        self.real_shape = original.shape
        self.probe = choose_probe(original)
        self.layer = original.with_shape(self.probe.shape)
        self.own = self.random = self.probe.values()
        self.eps: Eps | None = None
        self.eps_value: float | None = None
        self.eps_doubt = 0.0
        self.eps_follows_dtype = False
        self.running: Running | None = None
        self.following: Following | None = None
        self.spread = "mean square"
        self.is_scalar = False

    def randomize(self) -> None:
        """Move all weights and biases away from 0 and 1."""
        self.probe.randomize()
        self.random = self.probe.values()

    @property
    def exact(self) -> bool:
        """Whether the probing has more than half precision."""
        return self.probe.dtype in (torch.float64, torch.float32)

    @property
    def reduced(self) -> set[int]:
        """Axes that share statistics."""
        return set(self.groups.reduced)

    @property
    def count(self) -> int:
        """Elements in a group."""
        return self.groups.count(self.probe.shape)

    @property
    def tolerance(self) -> float:
        """How far two fitted numbers of size 1 may be apart and still be taken as equal."""
        return allowance(self.affine.error)

    @property
    def has_bias(self) -> bool:
        """Whether there are summands."""
        return float(self.affine.summand.abs().max()) > self.tolerance

    @property
    def model(self) -> Model:
        """What the layer is taken to compute."""
        return Model(self.groups, self.affine, self.eps or Eps(0.0, None, 0.0))

    def finish(self, y: Tensor) -> Tensor:
        """The output of the whole layer, from that of the norm."""
        return y if self.following is None else self.following.function(y)

    def copy(self, values: dict[str, Tensor], dtype: torch.dtype | None = None) -> Probe:
        """The layer, never called before, with these parameters."""
        probe = self.layer.at(dtype or self.probe.dtype)
        probe.assign(values)
        return probe
