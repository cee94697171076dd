"""Experiments of the chapter on warmup."""
