"""What only the book calls: experiments, exercises, figures, and code shown in a notebook."""

import sys
from importlib.util import find_spec

# Modules of the extra `experiments`. Every notebook needs them, and says so at its first import;
# the benchmarks run on a machine that has nothing but torch, too.
NEEDED = (
    *("fontTools", "joblib", "matplotlib", "pandas", "PIL", "pydantic", "sklearn"),
    *("threadpoolctl", "tqdm", "tyro"),
)
if "ipykernel" in sys.modules:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{', '.join(missing)} cannot be imported, and the notebooks need it. In the folder of "
            'the repository, run pip install ".[experiments]"',
            name=missing[0],
        )
