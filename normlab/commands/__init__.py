"""The command line: `normlab check`, `normlab identify`, `normlab doctor`, `normlab grade`.

The first three load an object by `module:Object` or `path/to/file.py:Object`, the last runs the
cells of a notebook with answers to exercises. Each prints a report, or JSON with `--json`. The
exit status is 0; 1 where a layer does not conform, a fault was found, something looks like a norm
and was not understood, or an answer is not right; and 2 where the command could not run or the
layer could not be tested.
"""

from normlab.commands.entry import main
from normlab.commands.loading import CommandError, construct, load_object

__all__ = ["CommandError", "construct", "load_object", "main"]
