"""The steps that lead to the kernels, which the chapter on fast norms shows and times.

`loops` has them for numba, `programs` for Triton; the last step is the back end's own code.
"""
