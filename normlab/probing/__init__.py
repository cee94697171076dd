"""Calls a layer that nobody has written down: its shapes, parameters, eps and state, by probing."""

from normlab.probing.functions import FunctionSubject
from normlab.probing.modules import AnySubject, ModuleSubject, make_subject
from normlab.probing.opening import choose_probe, open_probe, uncompiled
from normlab.probing.probe import NoNorm, Probe
from normlab.probing.state import copy_module, preserve_state

__all__ = [
    "AnySubject",
    "FunctionSubject",
    "ModuleSubject",
    "NoNorm",
    "Probe",
    "choose_probe",
    "copy_module",
    "make_subject",
    "open_probe",
    "preserve_state",
    "uncompiled",
]
