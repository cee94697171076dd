"""What was measured of a layer, so far."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.checks.fingerprint.function_behind import FunctionBehind, with_function
from normlab.checks.fingerprint.report import Fingerprint
from normlab.checks.probing.groups import Groups
from normlab.checks.probing.inputs import choose_input
from normlab.checks.probing.layer import ForeignLayer
from normlab.checks.probing.measurements import Affine, Eps, Model
from normlab.checks.probing.parameters import Role, allowance
from normlab.checks.probing.running import Running


class Evidence:
    """A layer and what was measured of it, step by step."""

    groups: Groups  #: cells that share statistics
    affine: Affine  #: fit at large inputs
    roles: dict[str, Role]  #: what each parameter does
    has_weight: bool  #: whether there are factors

    def __init__(self, original: ForeignLayer):
        self.report = Fingerprint()  #: for the caller
        self.real_shape = original.shape  #: that was asked about
        self.probe = choose_input(original)  #: in the dtype of the probing, with random parameters
        #: with parameters of their own dtype, and the shape of the probing
        self.layer = original.with_shape(self.probe.shape)
        self.own = self.probe.values()  #: parameters as they came
        self.random = self.own  #: parameters as they were randomized
        #: in the dtype of the probing, for a mean square with divisor n; None where not known
        self.eps: Eps | None = None
        #: with the layer's own divisor (n, where that is unknown), in float32 where it differs
        self.eps_value: float | None = None
        self.eps_doubt = 0.0  #: relative uncertainty of `eps_value`
        self.eps_follows_dtype = False  #: whether float32 and float64 have different ones
        self.running: Running | None = None  #: running statistics that move as torch's do
        #: pointwise function after the norm, removed from `probe` and `layer`
        self.behind: FunctionBehind | None = None
        self.spread = "mean square"  #: or "sum of squares", where n is left out
        self.channel: int | None = None  #: axis of the channels, of a norm that has channels
        self.is_scalar = False  #: the weight is one number for all

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
        """Whether there are summands; one of a single number is still 0."""
        moves = any(role.kind == "bias" for role in self.roles.values())
        return moves or float(self.affine.summand.abs().max()) > self.tolerance

    @property
    def model(self) -> Model:
        """What the layer is taken to compute."""
        return Model(self.groups, self.affine, self.eps or Eps(0.0, None, 0.0))

    def finish(self, y: Tensor) -> Tensor:
        """The output of the whole layer, from that of the norm."""
        return y if self.behind is None else self.behind.function(y)

    def whole(self) -> ForeignLayer:
        """A copy of the layer in its own dtype, with the function behind the norm."""
        return self.layer.fresh() if self.behind is None else with_function(self.layer)

    def copy(self, values: dict[str, Tensor], dtype: torch.dtype | None = None) -> ForeignLayer:
        """The layer, never called before, with these parameters."""
        probe = self.layer.at(dtype or self.probe.dtype)
        probe.assign(values)
        return probe
