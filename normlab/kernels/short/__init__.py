"""RMS norm in the fewest lines, for numba and for Triton: to be read beside `normlab.plain`."""
