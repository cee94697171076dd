"""Experiments of the chapter on RMS norm."""
