"""Experiments of the page on those of the layer norm paper."""
