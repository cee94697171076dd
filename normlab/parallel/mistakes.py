"""Every mistake of a norm over several processes, each defined once.

A definition says what is wrong and what would be right, what makes it, and where somebody met it.
The check recognizes a mistake by the values that it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from torch import Tensor

from normlab.norms import NORMS
from normlab.parallel import changes
from normlab.parallel.changes import Change, Shares
from normlab.parallel.division import Divided
from normlab.parallel.moments import Moments

_DIVIDED_MEANS: tuple[Divided, ...] = ("samples", "features", "all heads")
_SUMMED: tuple[Divided, ...] = ("tokens", "heads")
# norms in which mistakes were met
_RMS_MEANS: tuple[tuple[str, Divided], ...] = (("rms_norm", "features"), ("rms_norm", "all heads"))
_COPIED: tuple[tuple[str, Divided], ...] = (
    ("rms_norm", "heads"),
    ("layer_norm", "tokens"),
    ("rms_norm", "tokens"),
)


@dataclass(frozen=True)
class ParallelMistake:
    """One way to get a norm over several processes wrong; see :mod:`normlab.parallel.changes`."""

    message: str  #: what is wrong, and what would be right
    _: KW_ONLY
    over: tuple[Divided, ...] = ()  #: what is divided where it can be made
    sums: Change = changes.sum_shares  #: over all processes
    moments: Callable[[Shares, int, Change, bool], list[Moments]] = changes.find_moments
    record: Callable[[Tensor, Moments], Moments] = changes.record
    skips_empty: bool = False  #: a process without samples joins no collective
    sends_in_evaluation: bool = False
    #: axes of the (N, heads, T, head_dim) of a process that one statistic is over
    head_axes: tuple[int, ...] | None = None
    weights: Change = changes.keep_own  #: those of a QK norm
    gradients: Change = changes.sum_shares  #: those of weight and bias, after the backward pass
    in_means: bool = False  #: whether only a norm that subtracts a mean can have it
    seen_in: Mapping[tuple[str, Divided], str] = field(default_factory=dict)  #: where

    def fits(self, like: str, over: Divided) -> bool:
        """Whether such a norm can have it."""
        return over in self.over and (NORMS[like].centered or not self.in_means)


#: `Failure.mistake` of a report -> the mistake
MISTAKES = {
    "identity_backward": ParallelMistake(
        "the gradient of a statistic is only that of this process's outputs, though all processes "
        "use it. The backward of an all-reduce is an all-reduce",
        over=_DIVIDED_MEANS,
        sums=changes.sum_with_identity_backward,
        seen_in=dict.fromkeys(_RMS_MEANS, "FlashAttention issue 1244 asks about this all-reduce"),
    ),
    "heads_together": ParallelMistake(
        "the heads of a process are normalized together. Normalize each head by itself",
        over=("heads",),
        head_axes=(1, 3),
    ),
    "averaged": ParallelMistake(
        "it is averaged over the processes. The gradient of a shared weight is the sum",
        over=_SUMMED,
        gradients=changes.average_gradients,
        seen_in=dict.fromkeys(_COPIED, "GPT-NeoX pull request 1259 mends it"),
    ),
    "reduced_twice": ParallelMistake(
        "it is multiplied by the number of processes: summed over them once more than needed",
        over=(*_DIVIDED_MEANS, *_SUMMED),
        sums=changes.sum_with_two_reductions_backward,
        gradients=changes.sum_gradients_twice,
    ),
    "rounded_sum": ParallelMistake(
        "it is summed in bfloat16, which keeps 8 bits. Sum in float32, whatever the activations "
        "are",
        over=_SUMMED,
        gradients=changes.sum_gradients_in_bfloat16,
        seen_in=dict.fromkeys(_COPIED, "PyTorch issue 190626"),
    ),
    "partial": ParallelMistake(
        "it is only that of this process's share. Sum it over the processes, as "
        "reduce_norm_gradients does, before the step",
        over=_SUMMED,
        gradients=changes.forget_gradients,
        seen_in=dict.fromkeys(
            _COPIED, "NeMo RL issue 3716; Megatron-LM issue 7452; GPT-NeoX pull request 1257"
        ),
    ),
    "local_statistics": ParallelMistake(
        "each process normalizes with the statistics of its own share. Merge count, mean and "
        "squared deviations of all processes",
        over=_DIVIDED_MEANS,
        sums=changes.keep_own,
        seen_in={
            ("batch_norm", "samples"): (
                "batch norm under data parallel training, without synchronization"
            ),
            **dict.fromkeys(_RMS_MEANS, "proposed in vLLM pull request 39298"),
        },
    ),
    "count_ignored": ParallelMistake(
        "the shares are averaged as if they were equal. Weight each by its count, or sum "
        "and divide by the sum of the counts",
        over=_DIVIDED_MEANS,
        moments=changes.average_moments,
        seen_in=dict.fromkeys(
            _RMS_MEANS, "vLLM's RMS norm of MiniMax averages means, right for equal shares"
        ),
    ),
    "detached_statistics": ParallelMistake(
        "the statistics are taken as constants. Let the gradient pass through the collective",
        over=_DIVIDED_MEANS,
        sums=changes.sum_without_gradient,
    ),
    "spread_missing": ParallelMistake(
        "the variances are averaged, which leaves out how far the means of the shares differ. "
        "Add n_r (mean_r - mean)^2 for each share",
        over=_DIVIDED_MEANS,
        moments=changes.average_spreads,
        in_means=True,
    ),
    "cancellation": ParallelMistake(
        "exact around zero and wrong around 1e4 in float32: the mean of squares minus the square "
        "of the mean cancels. Send squared deviations from each share's own mean",
        over=_DIVIDED_MEANS,
        moments=changes.subtract_squares,
        in_means=True,
    ),
    "running_local": ParallelMistake(
        "the running statistics follow this process's share, not the whole batch",
        over=("samples",),
        record=changes.record_own,
    ),
    "running_local_count": ParallelMistake(
        "Bessel's correction of the running variance uses this process's count, not that of all",
        over=("samples",),
        record=changes.record_with_own_count,
    ),
    "running_var_biased": ParallelMistake(
        "the running variance is not Bessel-corrected",
        over=("samples",),
        record=changes.record_biased,
    ),
    "sends_in_evaluation": ParallelMistake(
        "in evaluation it waits for other processes; nothing has to be sent",
        over=("samples",),
        sends_in_evaluation=True,
    ),
    "skips_collective": ParallelMistake(
        "a process left out a collective that the others wait in; each has to join, also one "
        "whose share is empty",
        over=("samples",),
        skips_empty=True,
    ),
    "each_head_by_itself": ParallelMistake(
        "each head is normalized by itself. Take the mean square over all heads of all processes",
        over=("all heads",),
        head_axes=(3,),
    ),
    "weight_misplaced": ParallelMistake(
        "it is multiplied by weights of other heads. Give each process the weights of its own",
        over=("all heads",),
        weights=changes.take_first_weights,
        seen_in={("rms_norm", "all heads"): "vLLM pull request 38191; SGLang pull request 20967"},
    ),
    "raises": ParallelMistake(
        "it raises for a share that a norm over several processes has to take"
    ),
}
