"""What the checks yield, and the report in which it is collected."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from normlab.checks.mistakes import remedies

# how large an error is differs from check to check
_SIZE = re.compile(r" \(error [^)]*\)")


class CheckFailed(AssertionError):
    """A check was not passed; the message says what was expected and what came."""


@dataclass(frozen=True)
class Failure:
    """One check that a layer does not pass.

    Attributes:
        check: name of the check.
        message: a sentence that names the likely mistake.
        mistake: short name of that mistake, or None where none was recognized; several at
            once are joined by "+".
        inputs: how many inputs showed it.
    """

    check: str
    message: str
    mistake: str | None = None
    inputs: int = 1


@dataclass(frozen=True)
class Ran:
    """A check that ran, and how many calls it compared."""

    check: str
    cases: int = 1


@dataclass(frozen=True)
class Note:
    """What could not be checked, and why."""

    text: str
    untested: bool = False  #: a whole dtype could not be


Finding = Ran | Failure | Note


def make_failure(check: str, sentence: str, mistake: str | None = None, inputs: int = 1) -> Failure:
    """A failure whose message ends in the remedies of its mistakes."""
    return Failure(check, ". ".join([sentence, *remedies(mistake)]), mistake, inputs)


def excess_failure(
    check: str, sentence: str, mistake: str | None, ratio: float, inputs: int = 1
) -> Failure:
    """A failure with the size of its error, in units of what is allowed."""
    return make_failure(check, f"{sentence} (error {ratio:.1e} times the allowed)", mistake, inputs)


@dataclass
class Report:
    """Result of :func:`normlab.checks.check_layer`.

    Attributes:
        like: the family that the layer was compared with.
        checks: names of the checks that ran, in order.
        failures: those that were not passed.
        notes: what could not be checked, and why.
        untested: dtypes of which the layer refuses every input, a sentence for each.
        cases: calls that were compared.
    """

    like: str
    checks: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    untested: list[str] = field(default_factory=list)
    cases: int = 0

    @property
    def passed(self) -> bool:
        """Whether something was compared and no check failed."""
        return bool(self.checks) and self.cases > 0 and not self.failures

    def to_dict(self) -> dict[str, Any]:
        """The report as lists, strings and one bool, ready for JSON.

        Example:
            >>> Report("layer_norm", checks=["shape"], cases=1).to_dict()["passed"]
            True
        """
        return {"passed": self.passed, **asdict(self)}

    def __str__(self) -> str:
        failed = {f.check for f in self.failures}
        half = sorted({name.partition(",")[0] for name in failed} & {"bfloat16", "float16"})
        if self.passed:
            head = f"conforms to {self.like}: {len(self.checks)} checks"
        else:
            head = f"does not conform to {self.like}: "
            if half and all(name.startswith(tuple(half)) for name in failed):
                both = "bfloat16", "float16"
                right = [n for n in both if f"{n}, unit input" in self.checks and n not in half]
                dtypes = " and ".join(["float32", *right])
                head = f"conforms to {self.like} in {dtypes}, not in {', '.join(half)}: "
            head += f"{len(failed)} of {len(self.checks)} checks failed"
        lines = [f"{head}, {self.cases} case{'s' if self.cases != 1 else ''}"]
        lines += [f"  {sentence}" for sentence in sentences_of(self.failures)]
        lines += [f"  not tested: {sentence}" for sentence in self.untested]
        lines += [f"  not checked: {note}" for note in self.notes]
        return "\n".join(lines)


def collect(report: Report, findings: Iterable[Finding]) -> Report:
    """Write down what the checks yield, as it comes."""
    for found in findings:
        match found:
            case Failure():
                report.failures.append(found)
            case Note():
                (report.untested if found.untested else report.notes).append(found.text)
            case Ran():
                report.cases += found.cases
                if found.check not in report.checks:
                    report.checks.append(found.check)
    return report


def sentences_of(failures: Iterable[Failure]) -> list[str]:
    """One for each mistake, with the checks and the number of inputs that showed it."""
    by_mistake: dict[str, list[Failure]] = {}
    for failure in failures:
        key = failure.mistake or _SIZE.sub("", failure.message)
        by_mistake.setdefault(key, []).append(failure)
    sentences = []
    for alike in by_mistake.values():
        checks = ", ".join(dict.fromkeys(f.check for f in alike))
        count = sum(f.inputs for f in alike)
        where = f"{checks} ({count} inputs)" if count > 1 else checks
        sentences.append(f"{where}: {alike[0].message}")
    return sentences
