"""What a command line names, imported and constructed."""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import types
from pathlib import Path
from typing import Any


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
    where, what = split_name(name)
    found: Any = _load_module(where)
    for part in what.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part.lower(), {n.lower() for n in dir(found)}, 3)
            names = [n for n in dir(found) if n.lower() in near]
            hint = f" Did you mean {' or '.join(names[:3])}?" if names else _contents(found)
            raise CommandError(f"{name}: {where} has no {part!r}.{hint}")
        found = getattr(found, part)
    return found


def _contents(found: Any) -> str:
    """What can be named in it, norms first; nothing that it imports from elsewhere."""
    home = getattr(found, "__name__", "")
    names = [
        name
        for name, value in getattr(found, "__dict__", {}).items()
        if callable(value) and not name.startswith("_")
        if not (inspect.isclass(value) or inspect.isroutine(value))
        or str(getattr(value, "__module__", "")).startswith(home)
    ]
    names.sort(key=lambda name: "norm" not in name.lower())
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f" It has {', '.join(names[:8])}{more}." if names else ""


def split_name(name: str) -> tuple[str, str]:
    """Module or file, and the object in it, of `module:Object`; nothing is imported.

    Raises:
        CommandError: it is not of this form, or there is no such file.
    """
    where, colon, what = name.rpartition(":")
    if where.endswith(".py") and what and not Path(where).is_file():
        raise CommandError(f"{where}: there is no such file")
    modules = where.endswith(".py") or _is_dotted(where)
    if colon and modules and _is_dotted(what):
        return where, what
    raise CommandError(
        f"{name}: expected module:Object or path/to/file.py:Object, such as torch.nn:LayerNorm"
        f"{_hint(name)}"
    )


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _hint(name: str) -> str:
    """What was meant by a name of another form; empty if that is not clear."""
    called = re.fullmatch(r"([^()]+)\((.*)\)", name)
    if called:
        return f". Pass its arguments with --init: {called[1]} --init {called[2]!r}"
    where, colon, what = name.rpartition(":")
    if not colon:
        where, _, what = name.rpartition(".")
    where = where.replace("/", ".").replace(":", ".").strip(".")
    meant = what != "py" and _is_dotted(where) and _is_dotted(what)
    return f". Did you mean {where}:{what}?" if meant else ""


def _load_module(where: str) -> types.ModuleType:
    try:
        if not where.endswith(".py"):
            if "" not in sys.path:
                sys.path.insert(0, "")  # modules of the current folder can be imported
            return importlib.import_module(where)
        path = Path(where)
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
    except (Exception, SystemExit) as error:  # a module may fail in any way while it is imported
        raise CommandError(
            f"{where}: importing it raises {type(error).__name__}: {error}"
        ) from error


def construct(found: Any, arguments: str | None, *before: Any, flag: str = "--init") -> Any:
    """Make a layer or model of what was loaded.

    Args:
        found: a class, a function, or a module that is ready.
        arguments: literals as in a call, such as "16, eps=1e-6"; None to call only a class.
        before: arguments that come first, such as a configuration.
        flag: of the command line, for messages.

    Raises:
        CommandError: the arguments are no literals, or the call fails.

    Example:
        >>> construct(load_object("torch.nn:LayerNorm"), "16, eps=1e-6").eps
        1e-06
    """
    if arguments is None and not before and not inspect.isclass(found):
        return found
    if not callable(found):
        raise CommandError(f"{flag}: {type(found).__name__} takes no arguments; leave {flag} out")
    positional, named = read_literals(arguments or "", flag)
    try:
        return found(*before, *positional, **named)
    except (Exception, SystemExit) as error:  # a constructor may fail in any way
        name = getattr(found, "__name__", str(found))
        signature = "(...)"
        with contextlib.suppress(TypeError, ValueError):
            signature = str(inspect.signature(found))
        raise CommandError(
            f"{name}({arguments or ''}) raises {type(error).__name__}: {error}. Pass its arguments "
            f"with {flag}; its signature is {name}{signature}"
        ) from error


def read_literals(arguments: str, flag: str) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments of a call, from their text.

    Raises:
        CommandError: they are no literals.
    """
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
        assert isinstance(call, ast.Call)
        positional = [ast.literal_eval(a) for a in call.args]
        return positional, {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, AssertionError) as error:
        raise CommandError(
            f"{flag}: got {arguments!r}; expected literals as in a call, such as '16, eps=1e-6'"
        ) from error


def construct_named(text: str, flag: str, *before: Any) -> Any:
    """Make what `module:Object(arguments)` names, such as a configuration or an optimizer.

    Without parentheses, a class is called without arguments. Those in `before` come first.

    Raises:
        CommandError: it cannot be loaded or called.
    """
    name, parenthesis, rest = text.partition("(")
    if parenthesis and not rest.rstrip().endswith(")"):
        raise CommandError(f"{flag}: got {text!r}; expected module:Object(size=16, ...)")
    arguments = rest.rstrip()[:-1] if parenthesis else ""
    return construct(load_object(name), arguments, *before, flag=flag)
