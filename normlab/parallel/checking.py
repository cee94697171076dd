"""Is this norm over several processes equal to one process with everything?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import torch
from torch import Tensor, nn

from normlab.checks.report import CheckFailed, Failure, Report
from normlab.checks.tolerances import error_budget, max_error
from normlab.norms import NORMS
from normlab.parallel import cases, mistakes
from normlab.parallel.answering import Answer, answer, evaluate, is_function
from normlab.parallel.cases import Case, Divided, Values
from normlab.parallel.gradients import reduce_norm_gradients
from normlab.parallel.processes import Processes, RankFailed

_LIMIT = 1e-12
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
        over = "features" if is_function(layer) else "tokens"
        over = "samples" if NORMS[like].over_batch else over
    if over not in get_args(Divided) or (over == "samples") != NORMS[like].over_batch:
        others = ", ".join(repr(d) for d in get_args(Divided) if d != "samples")
        raise ValueError(
            f"over: got {over!r} for {like}; expected 'samples' for a norm over the batch, "
            f"one of {others} for the others"
        )
    if "heads" in over and is_function(layer):
        raise ValueError(
            f"layer: got a function over {over!r}; expected a module, its class or a factory"
        )
    if world_size < 2:
        raise ValueError(f"world_size: got {world_size}; expected 2 or more")
    report = Report(like)
    pool = processes or Processes(world_size, time_limit=60, patience=5)
    try:
        for case in cases.make_cases(like, over, pool.world_size):
            report.cases += 1
            if not _examine(layer, case, reduce, pool, report):
                break
    finally:
        if processes is None:
            pool.close()
    if raise_on_failure and not report.passed:
        raise CheckFailed(str(report))
    return report


def _examine(
    layer: Any, case: Case, reduce: Callable[..., Any], pool: Processes, report: Report
) -> bool:
    """Run one case; whether the next one is worth running."""
    name = getattr(getattr(layer, "func", layer), "__name__", type(layer).__name__)
    _note(report, "runs", case, "", None)
    try:
        answers = pool.run(answer, layer, case, reduce)
        alone = pool.run(evaluate, layer, case) if case.over == "samples" else []
    except (RankFailed, TimeoutError) as error:
        waited = isinstance(error, TimeoutError) or bool(error.waited and error.finished)
        in_evaluation = "in evaluate" in str(error)
        kind = "sends_in_evaluation" if in_evaluation else "skips_collective"
        kind = kind if waited else "raises"
        _note(report, "runs", case, f"{name}: {mistakes.SENTENCES[kind]}. {error}", kind)
        return not waited
    if case.offset and report.failures:
        return True  # what is wrong around zero says nothing new around a large mean
    failed = {f.check for f in report.failures}
    for check, message, mistake in _compare(case, answers, alone):
        if check == "running statistics" and "output" in failed:
            continue  # wrong statistics are wrong when recorded, too
        _note(report, check, case, message, mistake)
    return True


def _note(report: Report, check: str, case: Case, message: str, mistake: str | None) -> None:
    """Record a check and its first failure, or the first that names a mistake."""
    if check not in report.checks:
        report.checks.append(check)
    before = [f for f in report.failures if f.check == check]
    if message and (not before or (mistake is not None and before[0].mistake is None)):
        report.failures[:] = [f for f in report.failures if f.check != check]
        report.failures.append(Failure(check, f"with {case}: {message}", mistake))


def _compare(
    case: Case, answers: Sequence[Answer], alone: Sequence[Tensor | None]
) -> Iterator[tuple[str, str, str | None]]:
    """Each check, with a sentence and the mistake where it fails."""
    found = [a.values for a in answers]
    exact = cases.double(case)
    eps = answers[0].eps
    right = cases.one_process(exact, eps)
    singles = [cases.one_process(case, eps, torchs=t) for t in (False, True) if case.offset]
    number = torch.finfo(case.x.dtype).eps if eps is None else eps
    y, dx = (torch.cat([getattr(v, n) for v in found], case.axis) for n in ("y", "dx"))
    right_output = _near(y, right.y, [s.y for s in singles])
    if singles:
        near = right_output and _near(dx, right.dx, [s.dx for s in singles])
        named = mistakes.SENTENCES["cancellation"], "cancellation"
        yield ("output", *(("", None) if near else named))
        return
    wrong = mistakes.wrong_outputs(exact, number)
    yield ("output", *_verdict(y, right.y, wrong))
    if right_output:
        yield (
            "input gradient",
            *_verdict(dx, right.dx, mistakes.wrong_input_gradients(exact, right.dx, number)),
        )
        for name in ("dweight", "dbias"):
            if found[0]._asdict()[name] is not None:
                yield _compare_parameter(name, exact, answers, right, number)
        if found[0].running_mean is not None and right.running_mean is not None:
            yield _compare_running(exact, found, right)
    if alone:
        assert alone[0] is not None
        yield "evaluation", "" if alone[0].shape == found[0].y.shape else "another shape", None


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
            return mistakes.SENTENCES[mistake], mistake
    return "it differs from that of one process, by no mistake that is known here", None


def _compare_parameter(
    name: str, case: Case, answers: Sequence[Answer], right: Values, eps: float
) -> tuple[str, str, str | None]:
    check = {"dweight": "weight gradient", "dbias": "bias gradient"}[name]
    expected: Tensor = right._asdict()[name]
    parts = [a.values._asdict()[name] for a in answers]
    size = len(parts)
    if not answers[0].reduced:
        whole = torch.cat(parts) if case.axis == 1 else torch.stack(parts).sum(0)
        factors = {"reduced_twice": size * expected, "averaged": expected / size}
        return check, *_verdict(whole, expected, iter(factors.items()))
    known = dict(mistakes.wrong_sums(case, expected, eps, name[1:]))
    for rank, got in enumerate(parts):
        known["partial"] = mistakes.part_of_weight_gradient(case, rank, eps)[name == "dbias"]
        sentence, mistake = _verdict(got, expected, iter(known.items()))
        if sentence:
            return check, f"on rank {rank}: {sentence}", mistake
    return check, "", None


def _compare_running(
    case: Case, found: Sequence[Values], right: Values
) -> tuple[str, str, str | None]:
    assert right.running_mean is not None and right.running_var is not None
    expected = torch.cat([right.running_mean, right.running_var])
    for rank, values in enumerate(found):
        assert values.running_mean is not None and values.running_var is not None
        got = torch.cat([values.running_mean, values.running_var])
        wrong = mistakes.wrong_running(case, rank, right)
        known = ((mistake, torch.cat([mean, var])) for mistake, mean, var in wrong)
        sentence, mistake = _verdict(got, expected, known)
        if sentence:
            return "running statistics", f"on rank {rank}: {sentence}", mistake
    return "running statistics", "", None
