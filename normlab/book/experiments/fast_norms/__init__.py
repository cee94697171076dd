"""What the chapter on fast norms reads from the record of times, and what kernels survive."""
