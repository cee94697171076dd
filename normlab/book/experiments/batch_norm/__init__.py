"""Experiments of the chapter on batch norm."""
