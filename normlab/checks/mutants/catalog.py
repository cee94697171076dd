"""Every wrong norm of the suite, with the name that it must fail under and where it was met."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from normlab.checks.formula import FAMILIES
from normlab.checks.mutants.any_family import FORWARD_MISTAKES, make_wrong
from normlab.checks.mutants.backward import BACKWARD_MISTAKES
from normlab.checks.mutants.modules import MODULE_MISTAKES, WrongModule, WrongRunningModule
from normlab.checks.mutants.with_running import RUNNING_MISTAKES, make_wrong_running
from normlab.norms import NORMS

__all__ = ["THREADS", "Exhibit", "exhibits"]

# (family, mistake) -> where it was met; the others are plausible relatives
THREADS: dict[tuple[str, str], str] = {
    ("layer_norm", "eps_outside"): "the LN paper's authors' Lua code",
    ("layer_norm", "bessel"): "annotated-transformer pull request 119",
    ("layer_norm", "one_pass"): "pytorch issue 51102",
    ("layer_norm", "wrong_axis"): "attention-is-all-you-need-pytorch pull request 17",
    ("layer_norm", "other_eps"): "CTranslate2 pull request 951",
    ("layer_norm", "empty_input"): "tensorflow issue 46366",
    ("layer_norm", "constant_input"): "TIM-VX pull request 589",
    ("rms_norm", "eps_outside"): "the RMSNorm paper's authors' torch code; OLMo issue 281",
    ("rms_norm", "eps_clamp"): "x-transformers' RMSNorm",
    ("rms_norm", "eps_argument"): "TVM pull request 15856",
    ("rms_norm", "in_place"): "nano-vllm pull request 171",
    ("rms_norm", "weight_offset"): "Liger-Kernel issue 74",
    ("rms_norm", "half_precision_statistics"): "minimind issue 301",
    ("rms_norm", "output_dtype"): "transformers issue 30236",
    ("rms_norm", "upstream_overwritten"): "Liger-Kernel issue 370",
    ("rms_norm", "wrong_axis"): "llama-from-scratch issue 4",
    ("batch_norm", "bessel"): "makemore issue 44",
    ("batch_norm", "one_pass"): "labml's annotated implementations, batch norm",
    ("batch_norm", "detached_statistics"): "keras pull request 19102",
    ("batch_norm", "momentum_reversed"): "d2l-en pull request 2213",
    ("batch_norm", "non_contiguous"): "pytorch issue 62594",
    ("batch_norm", "not_updated"): "aprender pull request 2166",
    ("batch_norm", "state_lost"): "d2l-zh pull request 1265",
    ("batch_norm", "running_in_graph"): "d2l-en issue 1342",
    ("batch_norm", "running_var_biased"): "mlx pull request 3817; ARENA issue 415",
    ("group_norm", "one_pass"): "labml's annotated implementations, group norm",
}

_OF_THE_MEAN = {"uncentered_numerator", "missing_centering", "missing_mean_term"}
_OF_THE_VARIANCE = {"bessel", "one_pass"}
# of a spread that is no mean of squares, and its gradient
_OF_SQUARES = {"half_precision_statistics", *_OF_THE_VARIANCE, *BACKWARD_MISTAKES}
_OF_THE_WEIGHT = {
    "weight_offset",
    "weight_after_projection",
    "missing_weight",
    "averaged",
    "no_weight_raises",
}
_BY_TOKEN = {"empty_input"}  # channel norms that refuse it are right, too
# the report's name of a mistake, where it is another
_REPORTED = {"upstream_overwritten": "in_place", "constant_input": "", "batch_of_one": ""}


@dataclass(frozen=True)
class Exhibit:
    """One wrong norm.

    Attributes:
        like: family that it claims to be.
        name: of the mistake.
        description: what it does.
        make: gives the wrong function or module.
        mistake: `Failure.mistake` that a report must name; empty where the check says it all.
        thread: where it was met in the wild; "plausible" where no thread is known.
    """

    like: str
    name: str
    description: str
    make: Callable[[], Callable[..., Any]]
    mistake: str
    thread: str


def _applies(like: str, mistake: str) -> bool:
    norm = NORMS[like]
    if not norm.centered and mistake in _OF_THE_MEAN | _OF_THE_VARIANCE:
        return False
    if norm.spread != "mean square" and mistake in _OF_SQUARES:
        return False
    if not norm.has_weight and mistake in _OF_THE_WEIGHT | {"unregistered"}:
        return False
    per_mean = norm.parameters == "channel" and norm.over_channels == "none"
    applies = {
        f"eps_{norm.eps_placement}": False,
        # with one weight for all cells of a mean it commutes
        "weight_after_projection": not per_mean and norm.parameters != "scalar",
        "bias_first": norm.has_bias,
        "bias_raises": norm.has_bias,
        # a scalar fits anywhere
        "weight_raises": norm.parameters in ("channel", "shape"),
        # a batch or instance norm may be of one rank
        "rank_raises": norm.over_batch or not norm.needs_positions,
        "centered": not norm.centered,
        "wrong_grouping": norm.grouped,
        "batch_of_one": "batch of one" not in norm.not_demanded,
    }
    return applies.get(mistake, mistake not in _BY_TOKEN or norm.trailing)


def _reported(like: str, mistake: str) -> str:
    if not NORMS[like].centered and mistake == "missing_projection_term":
        return "detached_statistics"  # there is no other statistic to cut
    if NORMS[like].spread == "sum of squares" and mistake == "sum_not_mean":
        return "mean_not_sum"  # there the sum is right
    return _REPORTED.get(mistake, mistake)


def _function(like: str, mistake: str) -> Callable[..., Any]:
    return (make_wrong_running if NORMS[like].has_running else make_wrong)(like, mistake)


def _module(like: str, mistake: str) -> Callable[..., Any]:
    return (WrongRunningModule if NORMS[like].has_running else WrongModule)(like, 6, mistake)


def exhibits(like: str | None = None) -> Iterator[Exhibit]:
    """The wrong norms of one family, or of all.

    Args:
        like: family; None for all.
    """
    for family in FAMILIES if like is None else (like,):
        running = NORMS[family].has_running
        functions = {
            **FORWARD_MISTAKES,
            **BACKWARD_MISTAKES,
            **(RUNNING_MISTAKES if running else {}),
        }
        lost = {"state_lost"} if running else {"unregistered", "eval_differs"}
        lost.add("evaluation_raises")
        for mistakes, make in ((functions, _function), (MODULE_MISTAKES, _module)):
            for name, description in mistakes.items():
                if (make is _module and name not in lost) or not _applies(family, name):
                    continue
                yield Exhibit(
                    family,
                    name,
                    description,
                    _bind(make, family, name),
                    _reported(family, name),
                    THREADS.get((family, name), "plausible"),
                )


def _bind(
    make: Callable[[str, str], Callable[..., Any]], like: str, name: str
) -> Callable[[], Callable[..., Any]]:
    return lambda: make(like, name)
