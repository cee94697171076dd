"""The rules of the doctor: how grave each is, and where the book explains it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Rule:
    """One rule."""

    #: "error": outputs are wrong; "warning": look at it; "note": may be meant so
    severity: Severity
    page: str  #: chapter#target that explains it
    text: str  #: what it looks for


RULES: dict[str, Rule] = {
    "not_finite": Rule("error", "debugging#debugging-nan", "NaN or infinities in the state"),
    "negative_variance": Rule("error", "debugging#debugging-nan", "a running variance below 0"),
    "does_not_conform": Rule("error", "checks#checks-own", "a norm that differs from its formula"),
    "wrong_axes": Rule("error", "debugging#debugging-images", "statistics over positions"),
    "stale_statistics": Rule(
        "warning", "debugging#debugging-save", "evaluation with the statistics of a new layer"
    ),
    "batch_of_one": Rule("warning", "debugging#debugging-batch-of-one", "one sample in a batch"),
    "one_element": Rule("warning", "numerics#numerics-one", "statistics over one element"),
    "frozen_but_updating": Rule(
        "warning", "debugging#debugging-freezing", "frozen weights, moving statistics"
    ),
    "two_eps": Rule("warning", "debugging#debugging-eps", "two eps in one family"),
    "padding_in_statistics": Rule(
        "warning", "debugging#debugging-padding", "padding takes part in statistics"
    ),
    "cancelled_bias": Rule("warning", "batch_norm#bn-at-work", "a bias that is subtracted again"),
    "decayed_norm": Rule("warning", "debugging#debugging-decay", "weight decay on a norm"),
    "half_statistics": Rule("warning", "debugging#debugging-half", "statistics in 16 bits"),
    "shared_norm": Rule(
        "warning", "debugging#debugging-eval", "one batch norm on two different streams"
    ),
    "doubled_norm": Rule("warning", "layer_norm#layer-norm-block", "a norm of a norm"),
    "dropout_before_norm": Rule(
        "warning", "debugging#debugging-eval", "dropout in front of batch statistics"
    ),
    "momentum_convention": Rule(
        "warning", "numerics#numerics-libraries", "a momentum as other libraries mean it"
    ),
    "offset_convention": Rule(
        "warning",
        "rms_norm_further#rms-norm-offset",
        "weights that do not fit weight or 1 + weight",
    ),
    "unsynchronized_batch_norm": Rule(
        "warning", "many_devices#many-devices-ddp", "a batch norm that sees one process's samples"
    ),
    "recomputed_batch_norm": Rule(
        "warning", "many_devices#many-devices-checkpoint", "a batch that is counted twice"
    ),
    "partial_gradients": Rule(
        "warning", "many_devices#many-devices-tokens", "copies of a weight that get parts of sums"
    ),
    "rank_0_statistics": Rule(
        "note", "many_devices#many-devices-rank-0", "running statistics of one process"
    ),
    "unused_norm": Rule("note", "debugging#debugging-status", "a norm that was not called"),
    "zero_weight": Rule("note", "layer_norm#layer-norm-block", "a factor of 0 everywhere"),
}
