"""`python -m normlab`: the same as the command `normlab`."""

import sys

from normlab.commands import main

if __name__ == "__main__":
    sys.exit(main())
