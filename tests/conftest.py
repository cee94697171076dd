"""One thread, as `make test` has it, and what all tests share importable."""

import os
import sys
from pathlib import Path

# Before torch is imported. Two threads make small models many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
