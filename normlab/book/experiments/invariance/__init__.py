"""Experiments of the chapter on invariance."""
