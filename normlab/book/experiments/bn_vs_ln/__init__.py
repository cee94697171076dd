"""Experiments of the comparison of batch norm and layer norm."""
