"""`python -m normlab.experiments NAME`: run an experiment; without a name, list them all."""

import sys

from normlab.book.experiments.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
