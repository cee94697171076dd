"""Ways to compute a gradient that do not give that of the closed form."""

from typing import Any

from normlab.checks import compare_backwards

# rounding of a few hundred operations with a margin; differences err by 1e-9 themselves
ALLOWED = {"node by node": 1e-10, "autograd": 1e-10, "finite differences": 1e-6}


def disagreeing(name: str, *given: Any, **named: Any) -> set[tuple[str, str]]:
    """Way and gradient, of a norm of the reference."""
    found = compare_backwards(name, *given, **named)
    assert set(found) == set(ALLOWED)
    errors = ((way, key, error) for way, those in found.items() for key, error in those.items())
    return {(way, key) for way, key, error in errors if not error <= ALLOWED[way]}
