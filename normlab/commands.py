"""The command line: `normlab check`, `normlab identify`, `normlab doctor`, `normlab grade`.

The first three load an object by `module:Object` or `path/to/file.py:Object`, the last runs the
cells of a notebook with answers to exercises. Each prints a report, or JSON with `--json`. The
exit status is 0, 1 where a layer does not conform, a fault was found or an answer is not right,
and 2 where the command could not run or the layer could not be tested.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import json
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks import CONVENTIONS, check_layer
from normlab.checks.formula import FAMILIES
from normlab.fingerprint import identify
from normlab.grading import grade_notebook
from normlab.inspection import doctor

__all__ = ["CommandError", "construct", "load_object", "main"]

_CONVENTION_TYPES = {"eps": float, "momentum": float, "num_groups": int}


class CommandError(Exception):
    """The command cannot run; the text says what to do."""


def load_object(name: str) -> Any:
    """Import what `module:Object` or `file.py:Object` names.

    Args:
        name: a module or the path of a file, a colon, and a name in it; the name may have dots.

    Raises:
        CommandError: there is no such module, file or name, or the import fails.

    Example:
        >>> load_object("torch.nn:LayerNorm").__name__
        'LayerNorm'
    """
    where, colon, what = name.rpartition(":")
    if not colon or not where or not what:
        raise CommandError(
            f"{name}: expected module:Object or path/to/file.py:Object, such as torch.nn:LayerNorm"
        )
    found: Any = _load_module(where)
    for part in what.split("."):
        if not hasattr(found, part):
            near = ", ".join(n for n in dir(found) if n.lower() == part.lower())
            hint = f" Did you mean {near}?" if near else ""
            raise CommandError(f"{name}: {where} has no {part!r}.{hint}")
        found = getattr(found, part)
    return found


def _load_module(where: str) -> types.ModuleType:
    try:
        if not where.endswith(".py"):
            if "" not in sys.path:
                sys.path.insert(0, "")  # what stands in the current folder can be imported
            return importlib.import_module(where)
        path = Path(where)
        if not path.is_file():
            raise CommandError(f"{where}: there is no such file")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise CommandError(f"{where}: is no Python file")
        module = importlib.util.module_from_spec(spec)
        known = sys.modules.setdefault(spec.name, module)  # dataclasses look themselves up there
        sys.path.insert(0, str(path.resolve().parent))  # its neighbors can be imported
        try:
            spec.loader.exec_module(module)
        except BaseException:
            if known is module:
                del sys.modules[spec.name]
            raise
        return module
    except CommandError:
        raise
    except ModuleNotFoundError as error:
        hint = "Install it, or run from the folder that holds it, or name the file: file.py:Object"
        raise CommandError(f"{where}: cannot be imported: {error}. {hint}") from error
    except Exception as error:  # a module may fail in any way while it is imported
        raise CommandError(
            f"{where}: importing it raises {type(error).__name__}: {error}"
        ) from error


def construct(found: Any, arguments: str | None) -> Any:
    """Make a layer or model of what was loaded.

    Args:
        found: a class, a function, or a module that is ready.
        arguments: literals as in a call, such as "16, eps=1e-6"; None to call only a class.

    Raises:
        CommandError: the arguments are no literals, or the call fails.

    Example:
        >>> construct(nn.LayerNorm, "16, eps=1e-6").eps
        1e-06
    """
    if arguments is None and not inspect.isclass(found):
        return found
    try:
        call = ast.parse(f"f({arguments or ''})", mode="eval").body
        assert isinstance(call, ast.Call)
        positional = [ast.literal_eval(a) for a in call.args]
        named = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, AssertionError) as error:
        raise CommandError(
            f"--init: got {arguments!r}; expected literals as in a call, such as '16, eps=1e-6'"
        ) from error
    try:
        return found(*positional, **named)
    except Exception as error:  # a constructor may fail in any way
        name = getattr(found, "__name__", str(found))
        try:
            signature = str(inspect.signature(found))
        except (TypeError, ValueError):
            signature = "(...)"
        raise CommandError(
            f"{name}({arguments or ''}) raises {type(error).__name__}: {error}. Pass its arguments "
            f"with --init; its signature is {name}{signature}"
        ) from error


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").strip("()[] ").split(",") if part)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}; expected sizes such as 4,16") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="normlab",
        description="Is this norm right, which norm is it, and what is wrong around it?",
        epilog="Exit status: 0; 1 does not conform, has faults, not understood, not all right; "
        "2 could not run or be tested.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("object", help="module:Object or path/to/file.py:Object")
        command.add_argument(
            "--init", metavar="ARGS", help="to construct it, such as '16, eps=1e-6'"
        )
        command.add_argument("--shape", type=_sizes, help="of an input, such as 4,16")
        command.add_argument("--json", action="store_true", help="print JSON")
        return command

    check = add("check", "Compare a layer with the formula of a norm, and name the mistake.")
    check.add_argument("--like", required=True, choices=FAMILIES, help="family")
    check.add_argument("--double-backward", action="store_true", help="also differentiate twice")
    for name, allowed in CONVENTIONS.items():
        check.add_argument(
            "--" + name.replace("_", "-"),
            type=_CONVENTION_TYPES.get(name, type(allowed[0]) if allowed else float),
            choices=allowed,
            help="a choice that is not a mistake",
        )
    add("identify", "Find out which norm a layer computes, and with which conventions.")
    model = add("doctor", "Look through a model for what usually goes wrong around norms.")
    model.add_argument(
        "--integers", type=int, metavar="N", help="give token numbers below N as the input"
    )
    model.add_argument(
        "--allow-unknown",
        action="store_true",
        help="exit status 0 also where something looks like a norm and was not understood",
    )
    model.add_argument("--example", metavar="OBJECT", help="module:Object with the input itself")
    text = "Run a notebook's own cells in a fresh process and report what its checks say."
    answers = commands.add_parser("grade", help=text, description=text)
    answers.add_argument("notebook", help="path of a notebook with answers to exercises")
    answers.add_argument("--limit", type=float, default=600.0, help="seconds for all of it")
    answers.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _run(options: argparse.Namespace) -> tuple[dict[str, Any], str, int]:
    """The report as plain values and as text, and the exit status."""
    if options.command == "grade":
        graded = grade_notebook(options.notebook, limit=options.limit)
        return graded.to_dict(), str(graded), 0 if graded.passed else 1
    found = load_object(options.object)
    factory = options.command == "doctor" and not isinstance(found, nn.Module)
    layer = construct(found, options.init or ("" if factory else None))
    if options.command == "check":
        given = {name: getattr(options, name) for name in CONVENTIONS}
        report = check_layer(
            layer,
            like=options.like,
            shape=options.shape,
            double_backward=options.double_backward,
            **{name: value for name, value in given.items() if value is not None},
        )
        return report.to_dict(), str(report), 0 if report.passed else 1
    if options.command == "identify":
        if options.shape is None:
            raise CommandError(
                "--shape: identify needs the shape of an input, such as --shape 4,16"
            )
        fingerprint = identify(layer, shape=options.shape)
        return fingerprint.to_dict(), str(fingerprint), 0
    if not isinstance(layer, nn.Module):
        raise CommandError(
            f"{options.object}: got {type(layer).__name__}; doctor needs a module, its class, or a "
            "function that returns one"
        )
    examined = doctor(layer, _example(options))
    faults = any(f.severity != "note" for f in examined.findings)
    failed = faults or (bool(examined.unknown) and not options.allow_unknown)
    return examined.to_dict(), str(examined), 1 if failed else 0


def _example(options: argparse.Namespace) -> Any:
    if options.example is not None:
        example = load_object(options.example)
        return example() if callable(example) and not isinstance(example, Tensor) else example
    if options.shape is None:
        raise CommandError(
            "--shape: doctor needs an input: --shape 4,3,32,32, with --integers 1000 for token "
            "numbers, or --example module:Object for anything else"
        )
    g = torch.Generator().manual_seed(0)
    if options.integers is not None:
        return torch.randint(options.integers, options.shape, generator=g)
    return torch.randn(options.shape, generator=g)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: command line; None reads the real one.

    Returns:
        exit status: 0; 1 where a layer does not conform, a fault was found or an answer is not
        right; 2 where the command could not run or the layer could not be tested.
    """
    options = _parser().parse_args(arguments)
    try:
        values, text, status = _run(options)
    except Exception as error:  # what is loaded may fail in any way; that is no crash of ours
        expected = isinstance(error, CommandError | TypeError | ValueError)
        message = str(error) if expected else f"{type(error).__name__}: {error}"
        if isinstance(error, TypeError) and "construct" in message.lower():
            message += " (--init)"
        if options.json:
            print(json.dumps({"error": message}))
        else:
            print(f"normlab {options.command}: {message}", file=sys.stderr)
        return 2
    print(json.dumps(values, indent=1, default=str) if options.json else text)
    return status
