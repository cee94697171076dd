"""Experiments of the chapter on norms over many devices."""
