"""Experiments of the chapter on the models of today."""
