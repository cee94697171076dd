"""What do the inputs have in common that a layer raises for? Found by what works instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from normlab.checks.probing import ForeignFunction
from normlab.checks.report import Finding, Note, make_failure
from normlab.checks.trial import Trial
from normlab.norms import Case, Norm

T = TypeVar("T")
# ranks of an input that one type of torch's layers takes: BatchNorm1d, BatchNorm2d, ...
_TYPES: tuple[set[int], ...] = ({2, 3}, {4}, {5})


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why a layer raises."""

    mistakes: tuple[str, ...]  #: short names
    given: str  #: what it raises for


def _other_parameters(trial: Trial, case: Case) -> Iterator[tuple[Refusal, Case]]:
    """The same case without a weight or bias that it has, or with one that it lacks."""
    if not isinstance(trial.layer, ForeignFunction):
        return
    keys = [key for key in ("bias", "weight") if key in trial.layer.known]
    for changed in [[key] for key in keys] + ([keys] if len(keys) > 1 else []):
        had = [key if getattr(case, key) else f"no_{key}" for key in changed]
        given = " and ".join(f"a {h}".replace("a no_", "no ") for h in had)
        other: dict[str, Any] = {key: not getattr(case, key) for key in changed}
        yield (
            Refusal(tuple(f"{h}_raises" for h in had), given),
            dataclasses.replace(case, **other),
        )


def _at_rank(case: Case, norm: Norm, other: Case) -> Case | None:
    """The same size with as many axes as another case, and with a weight and bias as there."""
    rank = len(other.shape)
    if norm.trailing:
        leading = rank - len(case.parameter_shape)
        shape = (*(5, 3, 2)[3 - leading :], *case.parameter_shape) if 0 < leading < 4 else None
    else:
        shape = (3, *case.shape[1:2], 4, 5, 2)[:rank]
    if shape is None:
        return None
    return dataclasses.replace(case, shape=shape, weight=other.weight, bias=other.bias)


def attribute_refusal(
    trial: Trial, case: Case, call: Callable[[Case], Any], accepted: Sequence[Case]
) -> Refusal:
    """Vary one thing about a case that raises, until it does not, as for the accepted cases."""
    for refusal, other in _other_parameters(trial, case):
        if takes(other, call):
            return refusal
    if case.normalized_ndim > 1 and isinstance(trial.layer, ForeignFunction):
        last = dataclasses.replace(case, normalized_ndim=1, parameter_shape=case.shape[-1:])
        if takes(last, call):
            return Refusal(("axes_raises",), "several normalized axes")
    by_rank = {len(c.shape): c for c in accepted}
    if by_rank and len(case.shape) not in by_rank:
        others = [_at_rank(case, trial.norm, other) for other in by_rank.values()]
        if not any(others) or any(takes(other, call) for other in others if other):
            return Refusal(("rank_raises",), f"an input of rank {len(case.shape)}")
    return Refusal(("shape_raises",), f"an input of shape {case.shape}")


def _why_admissible(trial: Trial, refusal: Refusal, accepted: Sequence[Case]) -> str:
    """Why a right layer may raise here; empty if it may not."""
    for mistake in refusal.mistakes:
        role = mistake.removeprefix("no_").removesuffix("_raises")
        if mistake.startswith("no_") and not trial.layer.admits_none(role):
            return "weight or bias None: "
    norm = trial.norm
    # torch has a type for each rank of channel norms that are not over groups
    if refusal.mistakes == ("rank_raises",) and not norm.trailing and not norm.grouped:
        ranks = {len(c.shape) for c in accepted}
        if any(ranks <= taken for taken in _TYPES):
            return "another rank: "
    return ""


def takes(given: T, call: Callable[[T], Any]) -> bool:
    """Whether a call goes through."""
    try:
        call(given)
    except Exception:  # the layer under test may fail in any way; said where it is first seen
        return False
    return True


def report_refusals(
    trial: Trial,
    check: str,
    refused: Mapping[Case, str],
    accepted: Sequence[Case],
    call: Callable[[Case], Any],
) -> Generator[Finding, None, bool]:
    """A failure for each thing that the layer raises for and should take; else a note.

    Returns:
        whether it is known what the layer takes instead.
    """
    known, reported = bool(accepted), set()
    for case, error in refused.items():
        refusal = attribute_refusal(trial, case, call, accepted)
        known = known or refusal.mistakes != ("shape_raises",)
        allowed = _why_admissible(trial, refusal, accepted)
        if allowed:
            yield Note(allowed + error)
        elif known and refusal.mistakes not in reported:
            reported.add(refusal.mistakes)
            sentence = f"raises when it is given {refusal.given}: {error}"
            yield make_failure(check, sentence, "+".join(refusal.mistakes))
    return known
