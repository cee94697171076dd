"""The version of torch here; where torch changed its mind, a test says since which version."""

from importlib.metadata import version

VERSION = tuple(int(part) for part in version("torch").split(".")[:2])
