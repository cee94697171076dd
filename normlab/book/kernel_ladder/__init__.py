"""The steps that lead to the kernels, which the chapter on fast norms shows and times."""
