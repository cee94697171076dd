"""What a layer was found to compute."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normlab.norms import NORMS

_NOT_FIELDS = {"reasons", "equivalents", "notes", "state"}
# of these None, False and 0 are answers
_NOT_FIELDS |= {"followed_by", "modulated", "resembles_norm", "count", "variant"}


def load_state(layer: nn.Module, state: dict[str, Tensor]) -> None:
    """Copy weights, biases and running statistics by name, those that the layer has."""
    with torch.no_grad():
        for name, value in state.items():
            target = getattr(layer, name, None)
            if target is not None:
                target.copy_(value.reshape(target.shape))


@dataclasses.dataclass
class Fingerprint:
    """Result of :func:`normlab.identify`. A field that cannot be decided is None.

    Attributes:
        family: a name of :data:`normlab.norms.NORMS`, such as "batch_norm" or "scale_norm";
            "identity"; "frozen_batch_norm", whose statistics are fixed; or None.
        reduced_axes: axes of the input that share statistics, the channel axis of a group norm
            with more than one channel in a group included.
        num_groups: groups of channels, for a group norm; blocks, for an RMS norm in blocks.
        centered: whether the mean is subtracted.
        eps: "inside": added to the mean square; "outside": added to the root; "clamp": the root
            is at least the root of eps, as in :func:`normlab.checks.check_layer`. A norm that
            divides by a length has the sum of squares in place of their mean.
        eps_placement: "inside", "outside" or "clamp".
        divisor: "n" or "n-1".
        weight_offset: 0, or 1 where the factor is 1 + weight.
        weight_cast: where a half-precision input is normalized in a wider dtype, whether the
            weight is applied "before" or "after" the cast back.
        statistics_dtype: dtype of the statistics of a half-precision input.
        affine: whether there is a weight or a bias.
        running_statistics: whether evaluation mode uses statistics of earlier inputs.
        followed_by: function of each output that comes after the norm, such as "relu"; None where
            nothing does.
        modulated: factors or summands come from something beside the input, a condition.
        variant: which part the family's formula is applied to, where that is not what it usually
            takes together, such as "of each index of axis 2 by itself".
        nearest_torch: a constructor that evaluates under `torch.nn` and whose layer, given the
            same factors, summands and running statistics, reproduces the outputs
            (:meth:`to_torch` builds it).
        equivalents: other answers with the same outputs on this shape: families and
            constructors.
        reasons: by field, why it is None.
        notes: further things that were seen.
        state: factors, summands and running statistics of the layer, under torch's names.
        resembles_norm: of a layer without a family: inputs act on each other's outputs, and larger
            inputs give no larger outputs.
        count: cells that share statistics, in the inputs of the probing.
    """

    family: str | None = None
    reduced_axes: tuple[int, ...] | None = None
    num_groups: int | None = None
    centered: bool | None = None
    eps: float | None = None
    eps_placement: Literal["inside", "outside", "clamp"] | None = None
    divisor: Literal["n", "n-1"] | None = None
    weight_offset: int | None = None
    weight_cast: Literal["before", "after"] | None = None
    statistics_dtype: torch.dtype | None = None
    affine: bool | None = None
    running_statistics: bool | None = None
    followed_by: str | None = None
    modulated: bool = False
    variant: str | None = None
    nearest_torch: str | None = None
    equivalents: list[str] = dataclasses.field(default_factory=list)
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    state: dict[str, Tensor] = dataclasses.field(default_factory=dict, repr=False)
    resembles_norm: bool = False
    count: int = 0

    def undecided(self, reason: str) -> Fingerprint:
        """Give this reason for every field that is None and has none yet."""
        for name in self.fields():
            if getattr(self, name) is None:
                self.reasons.setdefault(name, reason)
        return self

    def fields(self) -> list[str]:
        """Names of the fields that describe the layer."""
        return [f.name for f in dataclasses.fields(self) if f.name not in _NOT_FIELDS]

    def to_torch(self) -> nn.Module:
        """Torch's layer with the parameters and running statistics of the one that was identified.

        Raises:
            ValueError: no layer of torch reproduces the outputs.
        """
        if self.nearest_torch is None:
            raise ValueError(f"nearest_torch: {self.reasons['nearest_torch']}")
        layer: nn.Module = eval(self.nearest_torch, dict(vars(nn)))
        load_state(layer[0] if isinstance(layer, nn.Sequential) else layer, self.state)
        return layer

    def describe_eps(self) -> str:
        """eps for readers, with its place where that is not inside the root."""
        if self.eps is None:
            return "-"
        record = NORMS.get(str(self.family))
        if self.eps_placement == "clamp" and record and record.spread == "sum of squares":
            return f"{math.sqrt(self.eps):.6g} on the L2 norm at least"
        if self.eps_placement == "clamp" and self.count:
            readings = {
                "on the mean square": self.eps,
                "on the root": math.sqrt(self.eps),
                "on the L2 norm": math.sqrt(self.eps * self.count),
            }
            what, value = min(readings.items(), key=lambda item: len(f"{item[1]:.4g}"))
            return f"{value:.4g} {what} at least"
        place = " outside the root" if self.eps_placement == "outside" else ""
        return f"{self.eps:.6g}{place}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.fields()}
        if self.statistics_dtype is not None:
            values["statistics_dtype"] = str(self.statistics_dtype).removeprefix("torch.")
        if self.reduced_axes is not None:
            values["reduced_axes"] = list(self.reduced_axes)
        return values | {
            "followed_by": self.followed_by,
            "modulated": self.modulated,
            "variant": self.variant,
            "equivalents": list(self.equivalents),
            "reasons": dict(self.reasons),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        head = self.family or "none of the norms that can be named"
        lines = [f"family: {head}"]
        if self.family is None:
            lines.append(f"  because {self.reasons['family']}")
        values = self.to_dict()
        names = [n for n in self.fields() if n != "family" and getattr(self, n) is not None]
        values["eps"] = self.describe_eps()
        if self.modulated:
            lines.append("  modulated          by something beside the input")
        if self.variant:
            lines.append(f"  {'variant':18} {self.variant}")
        if self.followed_by:
            lines.append(f"  {'followed_by':18} {self.followed_by}")
        lines += [f"  {name:18} {values[name]}" for name in names]
        if self.equivalents:
            lines.append(f"  {'equivalents':18} {', '.join(self.equivalents)}")
        lines += [f"  note: {note}" for note in self.notes]
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.reasons.items():
            if name != "family" and reason != self.reasons.get("family"):
                by_reason.setdefault(reason, []).append(name)
        lines += [f"  {', '.join(names)}: none, {reason}" for reason, names in by_reason.items()]
        return "\n".join(lines)
