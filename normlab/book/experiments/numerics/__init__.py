"""Experiments of the chapter on numerics."""
