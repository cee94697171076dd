"""Every wrong norm and block of the suite, with the name that it must fail under and its source."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from normlab.checks.formula import FAMILIES
from normlab.checks.mutants.any_family import FORWARD_MISTAKES, make_wrong
from normlab.checks.mutants.backward import BACKWARD_MISTAKES
from normlab.checks.mutants.listings import LISTINGS, WrongNorm
from normlab.checks.mutants.modules import MODULE_MISTAKES, WrongModule, WrongRunningModule
from normlab.checks.mutants.mutant import CONSTRUCTED, Mutant
from normlab.checks.mutants.residual import RESIDUAL_MUTANTS
from normlab.checks.mutants.threshold import THRESHOLD_MISTAKES
from normlab.checks.mutants.with_running import (
    CORRECTION_MISTAKES,
    RUNNING_MISTAKES,
    make_wrong_correction,
    make_wrong_running,
)
from normlab.norms import NORMS, find_norm

# (norm, mistake) -> where it was met; the others are constructed relatives
SOURCES: dict[tuple[str, str], str] = {
    ("layer_norm", "eps_outside"): "the LN paper's authors' Lua code",
    ("layer_norm", "bessel"): "annotated-transformer pull request 119",
    ("layer_norm", "bessel_eps_outside"): "annotated-transformer pull request 119",
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
_REPORTED = {
    "bessel_eps_outside": "bessel+eps_outside",
    "upstream_overwritten": "in_place",
    "constant_input": "",
    "batch_of_one": "",
}
# what is published as a listing of its own
_LISTED = {
    ("layer_norm", "eps_outside"): "eps_outside",
    ("layer_norm", "bessel_eps_outside"): "bessel_corrected_eps_outside",
    ("layer_norm", "other_eps"): "other_eps",
    ("layer_norm", "one_pass"): "one_pass",
}
_MISTAKES = {
    **FORWARD_MISTAKES,
    "bessel_eps_outside": "divisor n - 1, and eps added to the root",
    **BACKWARD_MISTAKES,
    **RUNNING_MISTAKES,
    **THRESHOLD_MISTAKES,
    **CORRECTION_MISTAKES,
    **MODULE_MISTAKES,
}


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
        **dict.fromkeys((*RUNNING_MISTAKES, "state_lost"), norm.has_running),
        **dict.fromkeys(THRESHOLD_MISTAKES, norm.has_threshold),
        **dict.fromkeys(CORRECTION_MISTAKES, norm.has_correction),
        **dict.fromkeys(("unregistered", "eval_differs"), not norm.has_running),
        "bessel_eps_outside": (like, mistake) in _LISTED,
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
    if NORMS[like].weight_offset and mistake == "weight_offset":
        return "weight_offset_forgotten"
    return _REPORTED.get(mistake, mistake)


def _make(like: str, name: str) -> Callable[..., Any]:
    running = NORMS[like].has_running
    if name in MODULE_MISTAKES:
        return (WrongRunningModule if running else WrongModule)(like, 6, name)
    if (like, name) in _LISTED:
        return LISTINGS[_LISTED[like, name]]
    if NORMS[like].has_correction:
        return make_wrong_correction(like, name)
    return (make_wrong_running if running else make_wrong)(like, name)


def mutants(norm: str | None = None) -> Iterator[Mutant]:
    """The wrong norms of one kind, or those of the norms that the main chapters compare.

    Args:
        norm: a key of :data:`normlab.norms.NORMS`; "pre_norm", "deep_norm" and "deep_norm_init"
            are wrong residual blocks and initializations, for which `make` gives what
            :func:`normlab.checks.check_residual` and its like take. None for all norms of the main
            chapters.

    Raises:
        ValueError: `norm` is unknown.

    Example:
        >>> next(mutants("rms_norm")).source
        "the RMSNorm paper's authors' torch code; OLMo issue 281"
    """
    if norm in RESIDUAL_MUTANTS:
        yield from RESIDUAL_MUTANTS[norm]
        return
    compared = (name for name in FAMILIES if NORMS[name].in_chapters)
    for like in compared if norm is None else (norm,):
        find_norm(like)
        for name, description in _MISTAKES.items():
            if "mutants" not in NORMS[like].absent and _applies(like, name):
                make = functools.partial(_make, like, name)
                source = SOURCES.get((like, name), CONSTRUCTED)
                yield Mutant(like, name, description, make, _reported(like, name), source)


def find_mutant(norm: str, name: str) -> Mutant:
    """One mutant.

    Raises:
        ValueError: there is none of this name.
    """
    found = {mutant.name: mutant for mutant in mutants(norm)}
    if name not in found:
        raise ValueError(f"name: got {name!r}; expected one of {', '.join(sorted(found))}")
    return found[name]


def _select(norm: str, names: dict[str, str]) -> dict[str, WrongNorm]:
    return {shown: find_mutant(norm, name).make() for shown, name in names.items()}


# The eleven and the eight of the chapters, under the names that they have there.
LAYER_NORM_MUTANTS: dict[str, WrongNorm] = _select(
    "layer_norm",
    {
        "eps_outside": "eps_outside",
        "bessel_corrected": "bessel",
        "bessel_corrected_eps_outside": "bessel_eps_outside",
        "other_eps": "other_eps",
        "one_pass": "one_pass",
        "detached_statistics": "detached_statistics",
        "uncentered_numerator": "uncentered_numerator",
        "wrong_axis": "wrong_axis",
        "backward_without_mean_term": "missing_mean_term",
        "backward_without_projection_term": "missing_projection_term",
        "weight_after_projection": "weight_after_projection",
    },
)
BATCH_NORM_MUTANTS: dict[str, WrongNorm] = _select(
    "batch_norm",
    {
        "eps_outside": "eps_outside",
        "bessel_in_forward": "bessel",
        "running_var_biased": "running_var_biased",
        "momentum_reversed": "momentum_reversed",
        "eval_uses_batch": "eval_uses_batch",
        "detached_statistics": "detached_statistics",
        "one_pass": "one_pass",
        "uncentered_numerator": "uncentered_numerator",
    },
)
