"""Experiments of the chapter on layer norm."""
