"""The command `python -m normlab.experiments`; its functions are in `normlab.book.experiments`."""
