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

_NOT_OF_RMS = {
    "bessel",
    "one_pass",
    "uncentered_numerator",
    "missing_centering",
    "bias_first",
    "missing_mean_term",
}
_BY_TOKEN = {"empty_input"}  # channel norms that refuse it are right, too
_WITH_RUNNING = ("batch_norm", "instance_norm")
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
    if like == "rms_norm" and mistake in _NOT_OF_RMS:
        return False
    if mistake == "centered":
        return like == "rms_norm"
    if mistake == "wrong_grouping":
        return like == "group_norm"
    if mistake == "weight_after_projection":  # with one weight for all it commutes
        return like not in _WITH_RUNNING
    if mistake == "batch_of_one":
        return like != "batch_norm"
    return mistake not in _BY_TOKEN or like in ("layer_norm", "rms_norm")


def _reported(like: str, mistake: str) -> str:
    if like == "rms_norm" and mistake == "missing_projection_term":
        return "detached_statistics"  # there is no other statistic to cut
    return _REPORTED.get(mistake, mistake)


def _function(like: str, mistake: str) -> Callable[..., Any]:
    return (make_wrong_running if like in _WITH_RUNNING else make_wrong)(like, mistake)


def _module(like: str, mistake: str) -> Callable[..., Any]:
    return (WrongRunningModule if like in _WITH_RUNNING else WrongModule)(like, 6, mistake)


def exhibits(like: str | None = None) -> Iterator[Exhibit]:
    """The wrong norms of one family, or of all.

    Args:
        like: family; None for all five.
    """
    for family in FAMILIES if like is None else (like,):
        running = family in _WITH_RUNNING
        functions = {
            **FORWARD_MISTAKES,
            **BACKWARD_MISTAKES,
            **(RUNNING_MISTAKES if running else {}),
        }
        lost = {"state_lost"} if running else {"unregistered", "eval_differs"}
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
