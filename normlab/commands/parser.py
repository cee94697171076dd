"""The flags of each command. Nothing here imports torch, so that --help is there at once."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import NoReturn

from normlab import __version__
from normlab.norms import CONVENTIONS

# convention -> type and help
_TEXTS: dict[str, tuple[type, str]] = {
    "eps": (float, "eps that is expected; otherwise the module's own, or torch's default"),
    "eps_placement": (str, "eps under the root, added to the root, or as its lower bound"),
    "divisor": (str, "of the variance: n-1 is Bessel's correction"),
    "weight_offset": (int, "1 where the factor is 1 + weight"),
    "weight_cast": (str, "whether the weight multiplies before or after the cast back to 16 bits"),
    "momentum": (float, "weight of the new batch in the running statistics"),
    "num_groups": (int, "groups of channels"),
}


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(p) for p in text.replace("x", ",").strip("()[] ").split(",") if p)
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 0:
        raise argparse.ArgumentTypeError(f"got {text!r}; expected sizes such as 4,16")
    return sizes


def _axes(text: str) -> int | tuple[int, ...]:
    try:
        if text.strip("- ").isdigit():
            return int(text)
        return tuple(int(part) for part in text.strip("()[] ").split(",") if part)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}; expected axes such as 1 or -2,-1"
        ) from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"got {text!r}; expected a number of seconds above 0")
    return seconds


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


class _Parser(argparse.ArgumentParser):
    """Suggests the option or choice that was meant."""

    def error(self, message: str) -> NoReturn:
        """Print the message, with the nearest option or choice, and exit."""
        chosen = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        unknown = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        near: list[str] = []
        if chosen:
            names = re.findall(r"[\w-]+", chosen[2])
            plain = {name.replace("_", ""): name for name in names}
            typed = re.sub(r"[^a-z]", "", chosen[1].lower())
            near = [plain[n] for n in difflib.get_close_matches(typed, plain, 1, 0.7)]
        elif unknown:
            near = difflib.get_close_matches(unknown[1], self.flags(), 1, 0.7)
        super().error(f"{message}. Did you mean {near[0]}?" if near else message)

    def flags(self) -> list[str]:
        """All options of this command and of those below it."""
        found = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += [flag for parser in action.choices.values() for flag in parser.flags()]
        return found


def make_parser(families: tuple[str, ...]) -> argparse.ArgumentParser:
    """The command line, with the names of the norms that `check` knows."""
    parser = _Parser(
        prog="normlab",
        description="Is this norm right, which norm is it, and what is wrong around it?",
        epilog="Exit status: 0; 1 does not conform, has faults, not understood; "
        "2 could not run or be tested.",
    )
    parser.add_argument("--version", action="version", version=f"normlab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str, shape: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("object", help="module:Object or path/to/file.py:Object")
        command.add_argument(
            "--init", metavar="ARGS", help="to construct it, such as '16, eps=1e-6'"
        )
        command.add_argument("--shape", type=_sizes, action="append", metavar="SIZES", help=shape)
        command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument(
            "--limit", type=_seconds, metavar="SECONDS", help="stop after so many seconds, status 2"
        )
        return command

    _add_check(
        add(
            "check",
            "Compare a layer with the formula of a norm, and name the mistake.",
            "of an input, such as 4,16; inferred where possible",
        ),
        families,
    )
    add(
        "identify",
        "Find out which norm a layer computes, and with which conventions.",
        "of an input, such as 4,16; once more for each further argument, as a condition",
    )
    _add_doctor(
        add(
            "doctor",
            "Look through a model for what usually goes wrong around norms.",
            "of an input, such as 2,3,32,32; once for each input",
        )
    )
    return parser


_EXAMPLES = """examples:
  normlab check my_norms.py:MyLayerNorm --init 16 --like layer_norm
  normlab check my_norms.py:ChannelNorm --init 8 --like layer_norm --shape 2,8,5,5 --axis 1
  normlab check my_norms.py:fused_norm --like rms_norm --call 'f(x, weight, eps)' --select '[0]'
"""


def _add_check(check: argparse.ArgumentParser, families: tuple[str, ...]) -> None:
    check.formatter_class, check.epilog = argparse.RawDescriptionHelpFormatter, _EXAMPLES
    check.add_argument("--like", required=True, choices=families, help="family")
    group = check.add_argument_group("how it is called")
    group.add_argument(
        "--call",
        metavar="CALL",
        help="such as 'f(x, weight)'; of a sum with a residual and its norm, "
        "'(r := f(x.abs(), x - x.abs(), weight))[0] + (r[1] - x).detach()'",
    )
    group.add_argument("--select", metavar="PART", help="of the result, such as '[0]' of a tuple")
    group = check.add_argument_group("what is asked of it")
    group.add_argument(
        "--axis", type=_axes, help="of the statistics of a layer or RMS norm, such as 1 or =-2,-1"
    )
    group.add_argument(
        "--weight-shape", type=_sizes, metavar="SIZES", help="of its weight, such as 4,1,16"
    )
    group.add_argument("--dtype", help="of the inputs, for a layer that takes no float32")
    group.add_argument("--dtypes", type=_names, help="those to try, such as float32,bfloat16")
    group.add_argument("--forward-only", action="store_true", help="compare no gradients")
    group.add_argument(
        "--no-empty", dest="empty", action="store_false", help="give no input without rows"
    )
    group.add_argument(
        "--no-batch-of-one", dest="batch_of_one", action="store_false", help="give no single sample"
    )
    group.add_argument(
        "--no-track-running-stats",
        dest="track_running_stats",
        action="store_false",
        help="a batch norm keeps no running statistics",
    )
    group.add_argument("--double-backward", action="store_true", help="also differentiate twice")
    group = check.add_argument_group("conventions, which do not count as mistakes")
    for name, allowed in CONVENTIONS.items():
        flag, (kind, text) = "--" + name.replace("_", "-"), _TEXTS[name]
        group.add_argument(flag, type=kind, choices=allowed, help=text)


def _add_doctor(model: argparse.ArgumentParser) -> None:
    group = model.add_argument_group("the model and its input")
    group.add_argument(
        "--config",
        metavar="OBJECT(ARGS)",
        help="first argument of the constructor, such as 'transformers:BertConfig(vocab_size=99)'",
    )
    group.add_argument("--eval", action="store_true", help="look at it in evaluation mode")
    group.add_argument(
        "--integers", type=int, metavar="N", help="give token numbers below N as the input"
    )
    group.add_argument(
        "--example",
        metavar="OBJECT",
        help="module:Object, the input itself: a tensor, a tuple of arguments or a dict of named "
        "ones, or a function that gives one",
    )
    group.add_argument(
        "--optimizer",
        metavar="OBJECT(ARGS)",
        help="such as 'torch.optim:AdamW(weight_decay=0.1)', to look at weight decay",
    )
    group = model.add_argument_group("the report")
    group.add_argument("--all", action="store_true", help="name all modules of a group")
    group.add_argument(
        "--ignore", type=_names, action="extend", default=[], metavar="RULES", help="leave out"
    )
    group.add_argument(
        "--select", type=_names, action="extend", default=[], metavar="RULES", help="only these"
    )
    group.add_argument(
        "--allow-unknown",
        action="store_true",
        help="exit status 0 also where something looks like a norm and was not understood",
    )
