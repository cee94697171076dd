"""Run an experiment with other settings: `python -m normlab.experiments NAME --help`."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib
import json
import pkgutil
import sys
import types
import typing
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal

import torch

import normlab.experiments
from normlab.experiments.recording import make_record

__all__ = ["find_experiments", "main", "make_parser"]


def find_experiments() -> dict[str, ModuleType]:
    """All modules here that have a `Config` and a `run`, by name."""
    found = {}
    for info in pkgutil.iter_modules(normlab.experiments.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"normlab.experiments.{info.name}")
        if hasattr(module, "Config") and hasattr(module, "run"):
            found[info.name] = module
    return found


def _first_line(documented: Any) -> str:
    return (documented.__doc__ or "").strip().partition("\n")[0]


def _attributes(config: type) -> dict[str, str]:
    """Descriptions of the fields, from the section Attributes of the docstring."""
    texts: dict[str, str] = {}
    name = ""
    _, _, section = (config.__doc__ or "").partition("Attributes:\n")
    for line in section.splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent == 8 and ":" in line:
            name, _, text = line.strip().partition(":")
            texts[name] = text.strip()
        elif line.strip() and indent > 8 and name:
            texts[name] += " " + line.strip()
    return texts


def _add_option(parser: argparse.ArgumentParser, field: Any, hint: Any, text: str) -> None:
    flag = "--" + field.name.replace("_", "-")
    default = None if field.default is dataclasses.MISSING else field.default
    settings: dict[str, Any] = {
        "default": default,
        "dest": field.name,
        "help": f"{text} (default: {default})".replace("%", "%%").strip(),
    }
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):  # Optional
        hint = next(a for a in arguments if a is not type(None))
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, **settings)
        return
    if origin is tuple:
        settings["nargs"] = "+"
        hint = arguments[0]
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        settings["choices"] = arguments
        hint = type(arguments[0])
    parser.add_argument(flag, type=hint, metavar=hint.__name__.upper(), **settings)


def make_parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    """Make the command line of one experiment out of the fields of its `Config`.

    Args:
        name: of the experiment.
        module: with its `Config` and `run`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m normlab.experiments {name}", description=_first_line(module)
    )
    hints, texts = typing.get_type_hints(module.Config), _attributes(module.Config)
    for field in dataclasses.fields(module.Config):
        _add_option(parser, field, hints[field.name], texts.get(field.name, ""))
    parser.add_argument("--record", metavar="FILE", help="write JSON there, not to the terminal")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one experiment, or list them all.

    Args:
        arguments: command line; None reads the real one.

    Returns:
        exit status: 0, or 2 for an unknown experiment or a bad setting.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    experiments = find_experiments()
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m normlab.experiments NAME [options]\n")
        width = max(map(len, experiments))
        for name, module in experiments.items():
            print(f"  {name:{width}}  {_first_line(module)}")
        return 0
    name, *rest = arguments
    if name not in experiments:
        near = difflib.get_close_matches(name, experiments, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        print(
            f"NAME: there is no experiment {name!r}.{hint} "
            "`python -m normlab.experiments` lists all",
            file=sys.stderr,
        )
        return 2
    module = experiments[name]
    parser = make_parser(name, module)
    values = vars(parser.parse_args(rest))
    path = values.pop("record")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    torch.set_num_threads(1)
    try:
        config = module.Config(**values)
        result = module.run(config)
    except (ValueError, TypeError) as error:
        parser.error(str(error))  # exits with status 2
    record = make_record(name, config, result, arguments=rest)
    text = json.dumps(record, indent=1, allow_nan=False)
    if path is None:
        print(text)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
