"""Normalization layers, their proofs and their checks: the package behind the book."""

__version__ = "0.1.0"
