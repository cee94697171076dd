"""The commands themselves: from the options to a report."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks import check_layer
from normlab.checks.fingerprint import identify
from normlab.checks.inspection import doctor
from normlab.commands.adapting import adapt
from normlab.commands.loading import CommandError, construct, construct_named, load_object


@dataclass(frozen=True)
class Answer:
    """What a command returns."""

    values: dict[str, Any]  #: the report as plain values
    report: Any  #: the report itself
    status: int  #: exit status


def run(options: argparse.Namespace) -> Answer:
    """Run the command that the options name."""
    commands = {"check": _check, "identify": _identify, "doctor": _doctor}
    return commands[options.command](options)


# what every command takes, and what `check` needs before it asks; the rest is for check_layer
_NOT_ASKED = {"command", "object", "init", "shape", "json", "limit", "like", "call", "select"}


def _check(options: argparse.Namespace) -> Answer:
    layer = construct(load_object(options.object), options.init)
    given = {k: v for k, v in vars(options).items() if k not in _NOT_ASKED and v is not None}
    if callable(layer):
        layer = adapt(layer, options.like, options.call, options.select)
    report = check_layer(layer, like=options.like, shape=_one_shape(options), **given)
    return Answer(report.to_dict(), report, 0 if report.passed else 1)


def _one_shape(options: argparse.Namespace) -> tuple[int, ...] | None:
    if options.shape and len(options.shape) > 1:
        raise CommandError("--shape: check takes one; give the other arguments with --call")
    return options.shape[0] if options.shape else None


def _identify(options: argparse.Namespace) -> Answer:
    layer = construct(load_object(options.object), options.init)
    first, *others = options.shape
    g = torch.Generator().manual_seed(0)
    found = identify(layer, shape=first, others=[torch.randn(s, generator=g) for s in others])
    return Answer(found.to_dict(), found, 0)


def _doctor(options: argparse.Namespace) -> Answer:
    found = load_object(options.object)
    before = [construct_named(options.config, "--config")] if options.config else []
    factory = not isinstance(found, nn.Module)
    model = construct(found, options.init or ("" if factory else None), *before)
    if not isinstance(model, nn.Module):
        raise CommandError(
            f"{options.object}: got {type(model).__name__}; doctor needs a module, its class, or a "
            "function that returns one"
        )
    if options.eval:
        model.eval()
    optimizer = None
    if options.optimizer:
        optimizer = construct_named(options.optimizer, "--optimizer", model.parameters())
    examined = doctor(
        model,
        _example(options),
        optimizer=optimizer,
        ignore=options.ignore,
        select=options.select,
        progress=_progress if sys.stderr.isatty() else None,
    )
    faults = any(f.severity != "note" for f in examined.findings)
    failed = faults or (bool(examined.unknown) and not options.allow_unknown)
    return Answer(examined.to_dict(), examined, 1 if failed else 0)


def _progress(done: int, total: int) -> None:
    end = "\r" if done + 1 < total else "\r\033[K"
    print(f"{done + 1} of {total} modules", end=end, file=sys.stderr, flush=True)


def _example(options: argparse.Namespace) -> Any:
    if options.example is not None:
        example = load_object(options.example)
        return example() if callable(example) and not isinstance(example, Tensor) else example
    if not options.shape:
        raise CommandError(
            "--shape: doctor needs an input: --shape 4,3,32,32, with --integers 1000 for token "
            "numbers, or --example module:Object for anything else"
        )
    g = torch.Generator().manual_seed(0)
    if options.integers is not None:
        if options.integers < 1:
            raise CommandError(f"--integers: got {options.integers}; expected a number above 0")
        return tuple(torch.randint(options.integers, s, generator=g) for s in options.shape)
    return tuple(torch.randn(shape, generator=g) for shape in options.shape)
