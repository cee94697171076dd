"""What has to be so before the libraries of the zoo are imported."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["HF_HUB_OFFLINE"] = "1"  # models come from configurations; nothing is fetched
