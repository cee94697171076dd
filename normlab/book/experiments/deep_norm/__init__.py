"""Experiments of the chapter on DeepNorm."""
