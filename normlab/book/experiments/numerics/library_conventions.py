"""What other libraries compute by default, as it was read in their code: one record a layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, model_validator

from normlab.book.experiments.numerics.eps_forms import Place, half_size
from normlab.norms import NORMS

Family = Literal["layer_norm", "batch_norm", "rms_norm"]
FAMILIES: tuple[Family, ...] = get_args(Family)
Text = Annotated[str, StringConstraints(min_length=1)]
Variance = Literal[
    "one pass",
    "one pass, floor 0",
    "two passes",
    "Welford",
    "by backend",
    "mean square",
    "not read",
]


class Convention(BaseModel):
    """One layer of one library with its default arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    library: Text  #: name on the package index
    version: Text  #: that was read
    layer: Text  #: class, operator or model
    family: Family
    source: Text  #: file inside the package
    #: default; None where the layer chooses one by dtype
    eps: Annotated[float, Field(gt=0, lt=1)] | None
    eps_place: Place
    variance: Variance  #: how it is computed
    #: dtype for 16-bit input, "input's" where nothing is upcast
    statistics: Literal["float32", "float64", "input's", "not read"]
    weight_cast: Literal["before", "after"] | None  #: the cast back, for RMS norm
    weight_offset: int  #: what is added to the stored weight
    momentum: float | None  #: default of batch norm; None where there is none
    momentum_of: Literal["new", "old"] | None  #: whether it weighs the batch or the average
    running_divisor: Literal["n", "n-1", "not read"] | None  #: of the variance in the buffer
    #: largest output error of 64 rows of 256 float32 numbers with mean 1000 and standard deviation
    #: 1, if the layer was run; None if only read
    error_at_1000: float | None
    note: str  #: what fits no column

    @model_validator(mode="after")
    def _check_batch_norms(self) -> Self:
        tracks = NORMS[self.family].over_batch
        if (self.momentum_of is None) == tracks or (self.running_divisor is None) == tracks:
            raise ValueError(
                f"momentum_of and running_divisor: got {self.momentum_of!r} and "
                f"{self.running_divisor!r} for {self.library} {self.layer}; batch norms have "
                "both, the others none"
            )
        return self

    @property
    def half_size(self) -> float | None:
        """Input size at which the output has half of its proper size; None without an eps."""
        return None if self.eps is None else half_size(self.eps, self.eps_place)

    @property
    def torch_momentum(self) -> float | None:
        """The momentum that torch would be given: the weight of the new batch."""
        if self.momentum is None:
            return None
        return self.momentum if self.momentum_of == "new" else round(1 - self.momentum, 12)

    @property
    def in_torch(self) -> str:
        """The layer of `torch.nn` that computes the same, with its arguments; "" for none."""
        norm, eps = NORMS[self.family], "" if self.eps is None else f", eps={self.eps:.0e}"
        if norm.over_batch:
            momentum = "1 - decay_rate" if self.torch_momentum is None else self.torch_momentum
            return f"nn.BatchNorm2d(C{eps}, momentum={momentum})"
        if self.eps_place != "inside":
            return ""
        call = f"nn.{'LayerNorm' if norm.centered else 'RMSNorm'}(D{eps})"
        return f"{call}, weight: 1 + theirs" if self.weight_offset else call


def read_conventions(path: Path | str) -> tuple[Convention, ...]:
    """Read the "conventions" of a JSON file; each record is complete and uses the known words.

    Raises:
        ValueError: a record lacks a field, has one too many, or a value that is not known; or
            two records describe the same layer.
    """
    records = json.loads(Path(path).read_text(encoding="utf-8"))["conventions"]
    found = TypeAdapter(tuple[Convention, ...]).validate_python(records)
    names = [(c.library, c.layer, c.family) for c in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"path: {sorted(twice)} stand there more than once")
    return found
