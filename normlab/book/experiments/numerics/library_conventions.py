"""What other libraries compute by default, as it was read in their code: one record a layer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from normlab.book.experiments.numerics.eps_forms import Place, half_size
from normlab.norms import NORMS

FAMILIES = ("layer_norm", "batch_norm", "rms_norm")
_CHOICES = {
    "family": FAMILIES,
    "eps_place": ("inside", "outside", "clamp"),
    "variance": (
        "one pass",
        "one pass, floor 0",
        "two passes",
        "Welford",
        "by backend",
        "mean square",
        "not read",
    ),
    "statistics": ("float32", "float64", "input's", "not read"),
    "weight_cast": ("before", "after", None),
    "momentum_of": ("new", "old", None),
    "running_divisor": ("n", "n-1", "not read", None),
}


@dataclass(frozen=True)
class Convention:
    """One layer of one library with its default arguments."""

    library: str  #: name on the package index
    version: str  #: that was read
    layer: str  #: class, operator or model
    family: str  #: "layer_norm", "batch_norm" or "rms_norm"
    source: str  #: file inside the package
    eps: float | None  #: default; None where the layer chooses one by dtype
    eps_place: Place  #: "inside", "outside" or "clamp"
    variance: str  #: how it is computed
    statistics: str  #: dtype for 16-bit input, "input's" where nothing is upcast
    weight_cast: str | None  #: "before" or "after" the cast back, for RMS norm
    weight_offset: int  #: what is added to the stored weight
    momentum: float | None  #: default of batch norm; None where there is none
    momentum_of: str | None  #: whether it weighs the "new" batch or the "old" average
    running_divisor: str | None  #: of the variance that the buffer keeps
    #: largest output error of 64 rows of 256 float32 numbers with mean 1000 and standard deviation
    #: 1, if the layer was run; None if only read
    error_at_1000: float | None
    note: str  #: what fits no column

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(
                    f"{name}: got {value!r} for {self.library} {self.layer}; expected one of "
                    f"{choices}"
                )
        for name in ("library", "version", "layer", "source"):
            if not getattr(self, name):
                raise ValueError(f"{name}: got an empty text for {self.library} {self.layer}")
        if self.eps is not None and not 0 < self.eps < 1:
            raise ValueError(f"eps: got {self.eps} for {self.library} {self.layer}; expected 0..1")
        tracks = NORMS[self.family].over_batch
        if (self.momentum_of is None) == tracks or (self.running_divisor is None) == tracks:
            raise ValueError(
                f"momentum_of and running_divisor: got {self.momentum_of!r} and "
                f"{self.running_divisor!r} for {self.library} {self.layer}; batch norms have "
                "both, the others none"
            )

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


def read_conventions(path: Path | str) -> tuple[Convention, ...]:
    """Read the "conventions" of a JSON file; each record is complete and uses the known words.

    Raises:
        ValueError: a record lacks a field, has one too many, or a value that is not known; or
            two records describe the same layer.
    """
    records = json.loads(Path(path).read_text(encoding="utf-8"))["conventions"]
    fields = set(Convention.__dataclass_fields__)
    for record in records:
        if wrong := fields ^ set(record):
            raise ValueError(
                f"path: the record of {record.get('library')} {record.get('layer')} lacks or has "
                f"beyond the fields {sorted(wrong)}"
            )
    found = tuple(Convention(**record) for record in records)
    names = [(c.library, c.layer, c.family) for c in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"path: {sorted(twice)} stand there more than once")
    return found
