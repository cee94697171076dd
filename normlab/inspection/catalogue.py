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


RULES: dict[str, Rule] = {
    "not_finite": Rule("error", "debugging#debugging-nan"),
    "negative_variance": Rule("error", "debugging#debugging-nan"),  # a running one
    "does_not_conform": Rule("error", "checks#checks-own"),  # to the formula of its family
    "wrong_axes": Rule("error", "debugging#debugging-images"),  # positions, not channels
    "stale_statistics": Rule("warning", "debugging#debugging-save"),  # those of a new layer
    "batch_of_one": Rule("warning", "debugging#debugging-batch-of-one"),
    "one_element": Rule("warning", "numerics#numerics-one"),  # behind each statistic
    "frozen_but_updating": Rule("warning", "debugging#debugging-freezing"),  # running statistics
    "two_eps": Rule("warning", "debugging#debugging-eps"),  # in one family
    "padding_in_statistics": Rule("warning", "debugging#debugging-padding"),
    "cancelled_bias": Rule("warning", "batch_norm#bn-at-work"),  # subtracted again by a norm
    "decayed_norm": Rule("warning", "debugging#debugging-decay"),
    "half_statistics": Rule("warning", "debugging#debugging-half"),  # in 16 bits
    "shared_norm": Rule("warning", "debugging#debugging-eval"),  # on two different streams
    "doubled_norm": Rule("warning", "layer_norm#layer-norm-block"),  # a norm of a norm
    "dropout_before_norm": Rule("warning", "debugging#debugging-eval"),
    "momentum_convention": Rule("warning", "numerics#numerics-libraries"),
    "offset_convention": Rule("warning", "rms_norm_further#rms-norm-offset"),  # 1 + weight
    "unsynchronized_batch_norm": Rule("warning", "many_devices#many-devices-ddp"),
    "recomputed_batch_norm": Rule("warning", "many_devices#many-devices-checkpoint"),
    "partial_gradients": Rule("warning", "many_devices#many-devices-tokens"),
    "rank_0_statistics": Rule("note", "many_devices#many-devices-rank-0"),
    "unused_norm": Rule("note", "debugging#debugging-status"),
    "zero_weight": Rule("note", "layer_norm#layer-norm-block"),
}
