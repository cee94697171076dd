"""The command line: `normlab check`, `normlab identify`, `normlab doctor`.

Each loads an object by `module:Object` or `path/to/file.py:Object` and prints a report, or JSON
with `--json`. The exit status is 0; 1 where a layer does not conform, a fault was found, or
something looks like a norm and was not understood; and 2 where the command could not run or the
layer could not be tested.
"""

from normlab.commands.entry import main
from normlab.commands.loading import CommandError, construct, load_object

__all__ = ["CommandError", "construct", "load_object", "main"]
