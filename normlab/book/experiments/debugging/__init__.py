"""Experiments of the page on debugging."""
