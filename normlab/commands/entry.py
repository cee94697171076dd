"""One run of the command line, from its arguments to the exit status."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

from normlab.commands.loading import CommandError, read_literals, split_name
from normlab.commands.parser import make_parser
from normlab.norms import CONVENTIONS, FROZEN, NORMS


class _LimitReached(BaseException):
    """Time is up. No `except Exception` of a layer or of a check may stop it."""


@contextlib.contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    if seconds is None:
        yield
        return
    if not hasattr(signal, "setitimer"):
        raise CommandError("--limit: this system has no timer for it; leave it out")

    def stop(number: int, frame: FrameType | None) -> None:
        raise _LimitReached

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# arguments of Python, as messages name them
_NAMES = "|".join([*CONVENTIONS, "axis|dtypes?|ignore|like|select|shape|weight_shape"])
_FIRST = re.compile(rf"^({_NAMES}): ")
# only where a message asks for one: a constructor that it prints stays Python
_ASKED = re.compile(
    rf"\b([Pp]ass|[Dd]eclare|declared is|such as) ({_NAMES})=(\([\d, ]+\)|'[^']*'|-?\w[\w.-]*|)"
)


def in_flags(message: str) -> str:
    """A message in the words of the command line.

    Example:
        >>> in_flags("Pass the shape of an input, such as shape=(4, 16)")
        'Pass the shape of an input, such as --shape 4,16'
        >>> in_flags("LayerNorm(16, eps=1e-06)")
        'LayerNorm(16, eps=1e-06)'
    """

    def flag(name: str, value: str = "") -> str:
        typed = value.strip("()").replace(" ", "").strip(",")
        return f"--{name.replace('_', '-')} {typed}".rstrip()

    message = _FIRST.sub(lambda m: f"{flag(m[1])}: ", message)
    message = _ASKED.sub(lambda m: f"{m[1]} {flag(m[2], m[3])}", message)
    message = message.replace("example_input: ", "--shape or --example: ")
    message = message.replace("pass track_running_stats=False", "pass --no-track-running-stats")
    message = message.replace("counts: wrap it", "counts: pass --select '[0]', or wrap it")
    if "Construct a class first" in message or "construct it first" in message:
        message += " (--init)"
    return message


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: command line; None reads the real one.

    Returns:
        exit status: 0; 1 where a layer does not conform, a fault was found or something was not
        understood; 2 where the command could not run or the layer could not be tested.
    """
    checked = (name for name, norm in NORMS.items() if "check" not in norm.absent)
    families = tuple(sorted(checked, key=lambda name: not NORMS[name].trailing))
    parser = make_parser((*families, FROZEN))
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    try:
        _check_syntax(options)
        # what a layer prints is no part of the report
        with contextlib.redirect_stdout(sys.stderr), _limited(options.limit):
            from normlab.commands.running import run

            answer = run(options)
    except _LimitReached:
        return _fail(options, f"stopped after {options.limit:g} seconds (--limit)")
    except KeyboardInterrupt:
        return _fail(options, "stopped from the keyboard")
    except SystemExit as error:
        return _fail(options, f"{options.object} calls sys.exit({error.code!r}). Take that out")
    except Exception as error:  # what is loaded may fail in any way; that is no crash of ours
        if isinstance(error, CommandError):
            return _fail(options, str(error))
        expected = isinstance(error, TypeError | ValueError)
        return _fail(
            options, in_flags(str(error) if expected else f"{type(error).__name__}: {error}")
        )
    if options.json:
        print(json.dumps(answer.values, indent=1, default=str))
    else:
        from normlab.commands.terminal import show

        show(answer.report, every=getattr(options, "all", False), say=in_flags)
    return answer.status


def _check_syntax(options: argparse.Namespace) -> None:
    """Refuse what cannot be read before anything is imported, which takes seconds.

    Raises:
        CommandError: the text says what to do.
    """
    split_name(options.object)
    read_literals(options.init or "", "--init")
    if options.command == "identify" and not options.shape:
        raise CommandError("--shape: identify needs the shape of an input, such as --shape 4,16")
    if options.command == "doctor" and options.example is not None:
        split_name(options.example)


def _fail(options: argparse.Namespace, message: str) -> int:
    if options.json:
        print(json.dumps({"error": message}))
    else:
        print(f"normlab {options.command}: {message}", file=sys.stderr)
    return 2
