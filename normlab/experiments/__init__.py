"""Experiments: a frozen config, `run(config)`, a result of plain numbers."""
