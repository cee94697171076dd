"""Experiments of the chapter on the norms after 2016."""
