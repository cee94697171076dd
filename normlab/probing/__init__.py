"""Calls a layer that nobody has written down: its shapes, parameters, eps and state, by probing."""

from normlab.probing.functions import FunctionSubject
from normlab.probing.modules import ModuleSubject, make_subject
from normlab.probing.probe import open_subject, preserve_state

__all__ = [
    "FunctionSubject",
    "ModuleSubject",
    "make_subject",
    "open_subject",
    "preserve_state",
]
