"""Is this norm over several processes equal to one process with everything?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from normlab.checks.probing import ForeignFunction, ForeignModule, ForeignNorm
from normlab.checks.report import CheckFailed, Failure, Report
from normlab.checks.tolerances import error_budget, max_error
from normlab.norms import NORMS
from normlab.parallel.changes import record, subtract_squares, sum_shares
from normlab.parallel.division import (
    HEAD_DIM,
    Divided,
    Division,
    Values,
    differentiate,
    double,
    make_divisions,
    one_process,
)
from normlab.parallel.gradients import reduce_norm_gradients
from normlab.parallel.mistakes import MISTAKES
from normlab.parallel.processes import Processes, RankFailed
from normlab.parallel.simulation import simulate

Finding = tuple[str, str, str | None]  # check, what is wrong or "", and the mistake
_WAITED = ("skips_collective", "sends_in_evaluation")
_LIMIT = 1e-12
_EPS = 1e-3  # of functions
# of what torch does not have either, there is no form for several processes
SUPPORTED = tuple(n for n, r in NORMS.items() if (r.over_batch or r.trailing) and r.torch)


def check_parallel(
    layer: Any,
    *,
    like: str,
    world_size: int = 2,
    over: Divided | None = None,
    reduce: Callable[[nn.Module], Any] = reduce_norm_gradients,
    processes: Processes | None = None,
    raise_on_failure: bool = False,
) -> Report:
    """Compare a norm over several processes with one process that has everything.

    Output, input gradient, gradients of weight and bias and running statistics are compared, for
    equal, uneven, empty and smallest shares in float64, and around a large mean in float32.

    Args:
        layer: a function or class of a module that other processes can import, or a module that
            can be pickled. A function is called as `f(input, weight, eps)` or
            `f(input, weight, bias, eps)`, for batch norm as :func:`sync_batch_norm`; a class or
            another factory is called with the number of features of the process.
        like: "batch_norm", "layer_norm" or "rms_norm".
        world_size: number of processes.
        over: what is divided: "samples" for batch norm; otherwise "features" of each token, the
            default for functions, or "tokens", the default for modules. For a QK norm "heads", each
            normalized by itself with one weight for all, or "all heads", normalized together; the
            module gets (N, heads, T, 4), and is made of 4, or of 4 and its number of heads.
        reduce: what a training step calls on the module between `backward` and the step.
        processes: a pool to run on; without it the check starts and ends one of its own, on
            which a collective waits at most 5 seconds for a process that does not come.
        raise_on_failure: raise instead of returning a report with failures.

    Returns:
        a report with `.passed`, `.failures` and a readable `str`.

    Raises:
        ValueError: an unknown `like` or `over`, or a layer that other processes cannot import.
        CheckFailed: something failed and `raise_on_failure` is set.

    Example:
        >>> from normlab.parallel import check_parallel, sync_batch_norm
        >>> print(check_parallel(sync_batch_norm, like="batch_norm"))
        conforms to batch_norm: 7 checks, 5 cases
    """
    if like not in SUPPORTED:
        raise ValueError(f"like: got {like!r}; expected one of {', '.join(map(repr, SUPPORTED))}")
    if over is None:
        over = "features" if _is_function(layer) else "tokens"
        over = "samples" if NORMS[like].over_batch else over
    if over not in get_args(Divided) or (over == "samples") != NORMS[like].over_batch:
        others = ", ".join(repr(d) for d in get_args(Divided) if d != "samples")
        raise ValueError(
            f"over: got {over!r} for {like}; expected 'samples' for a norm over the batch, "
            f"one of {others} for the others"
        )
    if "heads" in over and _is_function(layer):
        raise ValueError(
            f"layer: got a function over {over!r}; expected a module, its class or a factory"
        )
    if world_size < 2:
        raise ValueError(f"world_size: got {world_size}; expected 2 or more")
    cases, checks, failures = 0, dict[str, None](), dict[str, Failure]()
    pool = processes or Processes(world_size, time_limit=60, patience=5)
    try:
        for division in make_divisions(like, over, pool.world_size):
            cases, waited = cases + 1, False
            for check, sentence, mistake in _examine(layer, division, reduce, pool, {*failures}):
                checks[check] = None
                known = failures.get(check)
                if sentence and (known is None or (mistake and known.mistake is None)):
                    failures.pop(check, None)
                    failures[check] = Failure(check, f"with {division}: {sentence}", mistake)
                waited = waited or mistake in _WAITED
            if waited:
                break
    finally:
        if processes is None:
            pool.close()
    report = Report(like, checks=[*checks], failures=[*failures.values()], cases=cases)
    if raise_on_failure and not report.passed:
        raise CheckFailed(str(report))
    return report


def _is_function(layer: Any) -> bool:
    """Whether it normalizes tensors itself, rather than making a module that does."""
    if inspect.isclass(layer) or isinstance(layer, nn.Module):
        return False
    return "weight" in inspect.signature(layer).parameters


class Answer(NamedTuple):
    """What one process found; a weight gradient is complete on each where `reduced` is set."""

    values: Values
    eps: float | None
    reduced: bool


def _share_of(layer: Any, whole: Division) -> tuple[ForeignNorm, Division, float | None]:
    """The norm on this process, its share, and the eps of the norm."""
    share, record = whole.share(dist.get_rank()), NORMS[whole.like]
    if _is_function(layer):
        order = [role for role in record.roles if role != "normalized_shape"]  # the last axis
        return ForeignFunction(layer, whole.like, [share.case], _EPS, order), share, _EPS
    if not isinstance(layer, nn.Module):
        sizes = (HEAD_DIM, share.heads) if share.over == "all heads" else (share.x.shape[1],)
        layer = layer(*sizes)
    return ForeignModule(layer, whole.like, [share.case]), share, getattr(layer, "eps", record.eps)


def answer(layer: Any, whole: Division, reduce: Callable[[nn.Module], Any]) -> Answer:
    """On one process: its share, forward and backward."""
    norm, share, eps = _share_of(layer, whole)
    reduced = isinstance(norm, ForeignModule) and whole.axis == 0
    values = differentiate(norm, share, reduce if reduced else None)
    return Answer(values, eps, reduced)


def evaluate(layer: Any, whole: Division) -> torch.Size | None:
    """On rank 0 alone, a batch norm in evaluation, which has to send nothing: shape of its output.

    None on the other ranks.
    """
    if dist.get_rank() != 0:
        return None
    norm, share, _ = _share_of(layer, whole)
    running = share.x.new_zeros(share.x.shape[1]), share.x.new_ones(share.x.shape[1])
    y, _ = norm(share.case, share.x, *share.parameters, training=False, running=running)
    return y.shape


def _examine(
    layer: Any,
    division: Division,
    reduce: Callable[[nn.Module], Any],
    pool: Processes,
    failed: set[str],
) -> Iterator[Finding]:
    """What one division shows, given the checks that failed in those before it."""
    name = getattr(getattr(layer, "func", layer), "__name__", type(layer).__name__)
    try:
        answers = pool.run(answer, layer, division, reduce)
        alone = pool.run(evaluate, layer, division) if division.over == "samples" else []
    except (RankFailed, TimeoutError) as error:
        kind = "raises"
        if isinstance(error, TimeoutError) or (error.waited and error.finished):
            kind = _WAITED["in evaluate" in str(error)]
        yield "runs", f"{name}: {MISTAKES[kind].message}. {error}", kind
        return
    yield "runs", "", None
    if division.offset and failed:
        return  # what is wrong around zero says nothing new around a large mean
    for finding in _compare(division, answers):
        # wrong statistics are wrong when recorded, too
        if finding[0] != "running statistics" or "output" not in failed:
            yield finding
    if alone and not division.offset:
        same = alone[0] == answers[0].values.y.shape
        yield "evaluation", "" if same else "another shape", None


def _compare(division: Division, answers: Sequence[Answer]) -> Iterator[Finding]:
    exact, eps = double(division), answers[0].eps
    right = one_process(exact, eps)
    y, dx = (
        torch.cat([getattr(a.values, name) for a in answers], division.axis) for name in ("y", "dx")
    )
    if division.offset:
        singles = [one_process(division, eps, torchs=t) for t in (False, True)]
        near = _near(y, right.y, [s.y for s in singles])
        near = near and _near(dx, right.dx, [s.dx for s in singles])
        named = MISTAKES["cancellation"].message, "cancellation"
        yield ("output", *(("", None) if near else named))
        return
    number = torch.finfo(division.x.dtype).eps if eps is None else eps
    possible = {n: m for n, m in MISTAKES.items() if m.fits(exact.like, exact.over)}
    outputs = ((n, simulate(m, exact, number).y) for n, m in possible.items())
    yield ("output", *_verdict(y, right.y, outputs))
    if not _near(y, right.y):
        return
    gradients = (
        (n, simulate(replace(m, moments=moments), exact, number).dx)
        for n, m in possible.items()
        # a norm may send mean and deviations in turn or at once, and their gradients differ
        for moments in (m.moments, subtract_squares)
    )
    yield ("input gradient", *_verdict(dx, right.dx, gradients))
    for name in ("dweight", "dbias"):
        if getattr(answers[0].values, name) is not None:
            yield _compare_parameter(name, exact, answers, right, number)
    if right.running_mean is not None and answers[0].values.running_mean is not None:
        yield _compare_running(exact, answers, right, number)


def _near(got: Tensor, right: Tensor, singles: Sequence[Tensor] = ()) -> bool:
    """Whether it is right to rounding; in float32 to what one process would make of it."""
    if got.shape != right.shape:
        return False
    if not singles:
        return max_error(got, right) <= _LIMIT * max(1.0, float(right.abs().max()))
    single = max(max_error(s, right) for s in singles)
    return max_error(got, right) <= error_budget(right, torch.float32, single)


def _verdict(
    got: Tensor, right: Tensor, wrong: Iterator[tuple[str, Tensor]]
) -> tuple[str, str | None]:
    """A sentence and the mistake whose value it has, or nothing where it is right."""
    if _near(got, right):
        return "", None
    for mistake, value in wrong:
        if got.shape == value.shape and max_error(got, value) <= 1e-6 * max_error(value, right):
            return MISTAKES[mistake].message, mistake
    return "it differs from that of one process, by no mistake that is known here", None


def _compare_parameter(
    name: str, whole: Division, answers: Sequence[Answer], right: Values, eps: float
) -> Finding:
    check = {"dweight": "weight gradient", "dbias": "bias gradient"}[name]
    expected: Tensor = getattr(right, name)
    got = [getattr(a.values, name) for a in answers]
    if answers[0].reduced:
        parts = _split_parameter_gradient(name, whole, eps)
        names = [n for n, m in MISTAKES.items() if m.gradients is not sum_shares]
    else:
        parts, names = [expected / len(got)] * len(got), ["averaged", "reduced_twice"]
        got = [torch.cat(got) if whole.axis == 1 else torch.stack(got).sum(0)]
    for rank, one in enumerate(got):
        wrong = ((n, MISTAKES[n].gradients(parts)[rank]) for n in names)
        sentence, mistake = _verdict(one, expected, wrong)
        if sentence:
            where = f"on rank {rank}: " if answers[0].reduced else ""
            return check, where + sentence, mistake
    return check, "", None


def _split_parameter_gradient(name: str, whole: Division, eps: float) -> list[Tensor]:
    """What each process's own samples or tokens give to the gradient of weight or bias."""
    x_hat = one_process(whole, eps, affine=False).y
    cells = whole.dy * x_hat if name == "dweight" else whole.dy
    return [part.sum(0) for part in cells.split(whole.shards)]


def _compare_running(
    whole: Division, answers: Sequence[Answer], right: Values, eps: float
) -> Finding:
    def joined(values: Values) -> Tensor:
        assert values.running_mean is not None and values.running_var is not None
        return torch.cat([values.running_mean, values.running_var])

    recorded = {n: m for n, m in MISTAKES.items() if m.record is not record}
    for rank, one in enumerate(answers):
        wrong = ((n, simulate(m, whole, eps).running[rank]) for n, m in recorded.items())
        sentence, mistake = _verdict(joined(one.values), joined(right), wrong)
        if sentence:
            return "running statistics", f"on rank {rank}: {sentence}", mistake
    return "running statistics", "", None
