"""The rules of the doctor: how grave each is, where the book explains it, and what finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from normlab.checks.inspection import biases, conformance, devices, nans, padding, rules, usage
from normlab.checks.inspection.model_run import Found, ModelRun
from normlab.checks.inspection.report import Severity


@dataclass(frozen=True)
class Rule:
    """One rule."""

    #: "error": outputs are wrong; "warning": look at it; "note": may be meant so
    severity: Severity
    page: str  #: chapter#target that explains it
    find: Callable[[ModelRun], Found]  #: modules, and what is wrong with them
    needs_norms: bool = True  #: whether it asks which modules are norms


_RULES = (
    Rule("error", "debugging_causes#debugging-nan", rules.not_finite, needs_norms=False),
    Rule("error", "debugging_causes#debugging-nan", rules.negative_variance, needs_norms=False),
    Rule("error", "debugging_causes#debugging-nan", nans.nan_output, needs_norms=False),
    Rule("warning", "debugging_causes#debugging-save", rules.stale_statistics),
    Rule("note", "debugging_causes#debugging-save", usage.other_statistics),
    Rule("warning", "debugging_causes#debugging-batch-of-one", rules.batch_of_one),
    Rule("warning", "numerics_further#numerics-one", rules.one_element),
    Rule("warning", "debugging_causes#debugging-freezing", rules.frozen_but_updating),
    Rule("note", "debugging_causes#debugging-eps", rules.two_eps),
    Rule("note", "debugging_causes#debugging-images", rules.wrong_axes),
    Rule("error", "checks#checks-own", rules.size_dependent_gain),
    Rule("warning", "debugging_causes#debugging-padding", padding.padding_in_statistics),
    Rule("warning", "batch_norm#bn-at-work", biases.cancelled_bias),
    Rule("warning", "debugging_causes#debugging-decay", rules.decayed_norm),
    Rule("warning", "debugging_causes#debugging-half", rules.half_statistics),
    Rule("note", "debugging#debugging-tools", usage.unused_norm),
    Rule("warning", "debugging_causes#debugging-eval", usage.shared_norm),
    Rule("warning", "layer_norm#layer-norm-block", usage.doubled_norm),
    Rule("warning", "debugging_causes#debugging-eval", usage.dropout_before_norm),
    Rule("warning", "numerics_libraries#numerics-libraries", usage.momentum_convention),
    Rule("note", "layer_norm#layer-norm-block", usage.zero_weight),
    Rule("warning", "rms_norm_further#rms-norm-offset", usage.offset_convention),
    Rule("note", "layer_norm_further#layer-norm-details", usage.bessel_corrected),
    Rule("warning", "many_devices#many-devices-ddp", devices.unsynchronized_batch_norm),
    Rule("note", "many_devices#many-devices-rank-0", devices.rank_0_statistics),
    Rule("warning", "many_devices_further#many-devices-checkpoint", devices.recomputed_batch_norm),
    Rule("warning", "many_devices#many-devices-tokens", devices.partial_gradients),
    Rule("error", "checks#checks-own", conformance.does_not_conform),
)
RULES = {rule.find.__name__: rule for rule in _RULES}
