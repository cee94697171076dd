"""Experiments, each a function: its parameters are the grid and the settings."""
