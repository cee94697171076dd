"""Every mistake of a norm over several processes, each defined once.

A definition says what is wrong and what would be right, by which values the check recognizes it,
what a wrong norm does to make it, and where somebody met it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from torch import Tensor, nn

from normlab.norms import Norm
from normlab.parallel import changes, symptoms
from normlab.parallel.changes import Found, Sum
from normlab.parallel.collectives import sum_over_group
from normlab.parallel.division import Divided, Division, Values
from normlab.parallel.gradients import reduce_norm_gradients
from normlab.parallel.symptoms import Summands

Output = Callable[[Division, float], Tensor]
InputGradient = Callable[[Division, Tensor, float], Tensor]
Running = Callable[[Division, int, Values], "tuple[Tensor, Tensor] | None"]

_DIVIDED_MEANS: tuple[Divided, ...] = ("samples", "features", "all heads")
_SUMMED: tuple[Divided, ...] = ("tokens", "heads")
# norms in which mistakes were met
_RMS_MEANS: tuple[tuple[str, Divided], ...] = (("rms_norm", "features"), ("rms_norm", "all heads"))
_COPIED: tuple[tuple[str, Divided], ...] = (
    ("rms_norm", "heads"),
    ("layer_norm", "tokens"),
    ("rms_norm", "tokens"),
)


def _centered(norm: Norm) -> bool:
    return norm.centered


def _none(norm: Norm) -> bool:
    return False


@dataclass(frozen=True)
class Mistake:
    """One way to get a norm over several processes wrong."""

    says: str  #: what is wrong, and what would be right
    _: KW_ONLY
    over: tuple[Divided, ...] = ()  #: what is divided where it can be made
    #: the values that it gives; see :mod:`normlab.parallel.symptoms`
    output: Output | None = None
    input_gradients: tuple[InputGradient, ...] = ()
    running: Running | None = None
    summed: Callable[[Summands], Tensor] | None = None
    #: what a wrong norm does differently; see :mod:`normlab.parallel.changes`
    sums: Sum = sum_over_group
    moments: Callable[[Tensor, int, Sum, bool], Found] = changes.find_moments
    record: Callable[[Tensor, Found], tuple[Tensor, Tensor]] = changes.record
    skips_empty: bool = False  #: a process without samples joins no collective
    sends_in_evaluation: bool = False
    #: axes of the (N, heads, T, head_dim) of a process that one statistic is over
    head_axes: tuple[int, ...] | None = None
    weights: Callable[[Tensor], Tensor] | None = None  #: changes those of a QK norm
    reduce: Callable[[nn.Module], object] = reduce_norm_gradients
    wrong_norm: Callable[[Norm], bool] = lambda norm: True  #: whether there is a wrong norm with it
    met: Mapping[tuple[str, Divided], str] = field(default_factory=dict)  #: where


#: `Failure.mistake` of a report -> the mistake
MISTAKES = {
    "identity_backward": Mistake(
        "the gradient of a statistic is only that of this process's outputs, though all processes "
        "use it. The backward of an all-reduce is an all-reduce",
        over=_DIVIDED_MEANS,
        input_gradients=(symptoms.of_own_outputs, symptoms.of_own_outputs_in_turn),
        sums=changes.sum_with_identity_backward,
        met=dict.fromkeys(_RMS_MEANS, "FlashAttention issue 1244 asks about this all-reduce"),
    ),
    "heads_together": Mistake(
        "the heads of a process are normalized together. Normalize each head by itself",
        over=("heads",),
        output=symptoms.heads_together,
        head_axes=(1, 3),
    ),
    "averaged": Mistake(
        "it is averaged over the processes. The gradient of a shared weight is the sum",
        over=_SUMMED,
        summed=lambda given: given.total / len(given.parts),
        reduce=changes.average_gradients,
        met=dict.fromkeys(_COPIED, "GPT-NeoX pull request 1259 mends it"),
    ),
    "reduced_twice": Mistake(
        "it is multiplied by the number of processes: summed over them once more than needed",
        over=(*_DIVIDED_MEANS, *_SUMMED),
        input_gradients=(symptoms.through_statistics_twice,),
        summed=lambda given: len(given.parts) * given.total,
        sums=changes.sum_with_two_reductions_backward,
        reduce=changes.sum_gradients_twice,
    ),
    "rounded_sum": Mistake(
        "it is summed in bfloat16, which keeps 8 bits. Sum in float32, whatever the activations "
        "are",
        over=_SUMMED,
        summed=symptoms.summed_in_bfloat16,
        reduce=changes.sum_gradients_in_bfloat16,
        met=dict.fromkeys(_COPIED, "PyTorch issue 190626"),
    ),
    "partial": Mistake(
        "it is only that of this process's share. Sum it over the processes, as "
        "reduce_norm_gradients does, before the step",
        over=_SUMMED,
        summed=lambda given: given.parts[given.rank],
        reduce=changes.forget_gradients,
        met=dict.fromkeys(
            _COPIED, "NeMo RL issue 3716; Megatron-LM issue 7452; GPT-NeoX pull request 1257"
        ),
    ),
    "local_statistics": Mistake(
        "each process normalizes with the statistics of its own share. Merge count, mean and "
        "squared deviations of all processes",
        over=_DIVIDED_MEANS,
        output=symptoms.normalized_alone,
        sums=changes.keep_own,
        met={
            ("batch_norm", "samples"): (
                "batch norm under data parallel training, without synchronization"
            ),
            **dict.fromkeys(_RMS_MEANS, "proposed in vLLM pull request 39298"),
        },
    ),
    "count_ignored": Mistake(
        "the shares are averaged as if they were equal. Weight each by its count, or sum "
        "and divide by the sum of the counts",
        over=_DIVIDED_MEANS,
        output=symptoms.merged_as_equal,
        moments=changes.average_moments,
        met=dict.fromkeys(
            _RMS_MEANS, "vLLM's RMS norm of MiniMax averages means, right for equal shares"
        ),
    ),
    "detached_statistics": Mistake(
        "the statistics are taken as constants. Let the gradient pass through the collective",
        over=_DIVIDED_MEANS,
        input_gradients=(symptoms.detached,),
        sums=changes.sum_without_gradient,
    ),
    "local_count": Mistake(
        "the mean in the backward divides by this process's count. Divide by the count of all",
        over=_DIVIDED_MEANS,
        input_gradients=(symptoms.by_own_count,),
        wrong_norm=_none,
    ),
    "spread_missing": Mistake(
        "the variances are averaged, which leaves out how far the means of the shares differ. "
        "Add n_r (mean_r - mean)^2 for each share",
        over=_DIVIDED_MEANS,
        output=symptoms.merged_without_means,
        moments=changes.average_spreads,
        wrong_norm=_centered,
    ),
    "cancellation": Mistake(
        "exact around zero and wrong around 1e4 in float32: the mean of squares minus the square "
        "of the mean cancels. Send squared deviations from each share's own mean",
        over=_DIVIDED_MEANS,
        moments=changes.subtract_squares,
        wrong_norm=_centered,
    ),
    "running_local": Mistake(
        "the running statistics follow this process's share, not the whole batch",
        over=("samples",),
        running=symptoms.running_of_share,
        record=changes.record_own,
    ),
    "running_local_count": Mistake(
        "Bessel's correction of the running variance uses this process's count, not that of all",
        over=("samples",),
        running=symptoms.running_by_own_count,
        record=changes.record_with_own_count,
    ),
    "running_var_biased": Mistake(
        "the running variance is not Bessel-corrected",
        over=("samples",),
        running=symptoms.running_biased,
        record=changes.record_biased,
    ),
    "sends_in_evaluation": Mistake(
        "in evaluation it waits for other processes; nothing has to be sent",
        over=("samples",),
        sends_in_evaluation=True,
    ),
    "skips_collective": Mistake(
        "a process left out a collective that the others wait in; each has to join, also one "
        "whose share is empty",
        over=("samples",),
        skips_empty=True,
    ),
    "each_head_by_itself": Mistake(
        "each head is normalized by itself. Take the mean square over all heads of all processes",
        over=("all heads",),
        output=symptoms.each_head,
        head_axes=(3,),
    ),
    "weight_misplaced": Mistake(
        "it is multiplied by weights of other heads. Give each process the weights of its own",
        over=("all heads",),
        output=symptoms.with_first_weights,
        weights=changes.take_first_weights,
        met={("rms_norm", "all heads"): "vLLM pull request 38191; SGLang pull request 20967"},
    ),
    "raises": Mistake("it raises for a share that a norm over several processes has to take"),
}
