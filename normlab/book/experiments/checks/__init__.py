"""Experiments of the chapter on checks."""
