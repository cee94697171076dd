"""Does each norm of a model compute what its conventions say?"""

from __future__ import annotations

from normlab.checks import check_layer
from normlab.checks.inspection.devices import is_shared, process_count
from normlab.checks.inspection.foreign import REFUSALS, first_line
from normlab.checks.inspection.model_run import Found, FoundNorm, ModelRun
from normlab.checks.inspection.rules import HALF, one_of_each, probing_shape
from normlab.checks.probing.arguments import OneTensor
from normlab.checks.probing.state import finite
from normlab.checks.report import Failure, sentences_of
from normlab.checks.trial import name_of

_CONVENTIONS = ("eps", "eps_placement", "divisor", "weight_offset", "weight_cast", "num_groups")

# what a check that assumes other axes than the norm has would say
_OTHER_READINGS = ("wrong_axis", "wrong_grouping", "parameter_shape")


def _can_be_checked(norm: FoundNorm) -> bool:
    """Whether there is a formula for it, with one input."""
    found, record, layer = norm.fingerprint, norm.record, norm.layer
    usual = found.nearest_torch is not None or found.eps_placement != "inside"
    usual |= record.torch is None  # so that none of torch's layers comes nearest
    after = found.followed_by is not None or found.modulated or found.variant is not None
    alone = not (isinstance(layer, OneTensor) and layer.has_others)
    has_formula = "check" not in record.absent
    return has_formula and usual and not after and found.eps is not None and alone


def _concerns(failure: Failure, norm: FoundNorm) -> bool:
    """Whether a failure shows in the dtype that the norm gets, and not in its statistics alone.

    Of statistics in 16 bits the rule half_statistics speaks.
    """
    if "float16" not in failure.check:
        return True
    if failure.check.partition(",")[0] != name_of(norm.call.dtype):
        return False
    wide = norm.fingerprint.statistics_dtype not in HALF
    return wide if failure.mistake is None else failure.mistake != "half_precision_statistics"


def does_not_conform(run: ModelRun) -> Found:
    """Each kind of norm once, compared with the formula that its conventions declare."""
    for norm, alike in one_of_each(run.norms):
        if not _can_be_checked(norm):
            continue
        if process_count() > 1 and is_shared(norm.layer):
            run.notes.append(f"{norm.path}: normlab.parallel.check_parallel is what checks it")
            continue
        given = {name: getattr(norm.fingerprint, name) for name in _CONVENTIONS}
        conventions = {name: value for name, value in given.items() if value is not None}
        like, shape = str(norm.fingerprint.family), probing_shape(norm)
        if norm.record.trailing and norm.fingerprint.reduced_axes:
            conventions["axis"] = norm.fingerprint.reduced_axes
        try:
            with finite(norm.layer) as clean:
                report = check_layer(clean, like=like, shape=shape, **conventions)
        except REFUSALS as error:
            run.notes.append(f"{norm.path} could not be checked: {first_line(error)}")
            continue
        modules = tuple(n.path for n in alike)
        if any(failure.mistake in _OTHER_READINGS for failure in report.failures):
            run.notes.append(
                f"{norm.path}: identified, and not checked: check_layer reads its axes or "
                f"parameters in another way than they were found ({report.failures[0].message})"
            )
            continue
        for sentence in sentences_of(f for f in report.failures if _concerns(f, norm)):
            yield modules, sentence
