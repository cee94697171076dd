"""Experiments of the chapter on why normalization exists."""
