"""Experiments of the chapter on PyTorch's source."""
