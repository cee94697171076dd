"""What a file cannot say: links to the repository, whose address is in the environment."""

import os

from setuptools import setup

pages = {"Repository": "", "Changelog": "/blob/HEAD/CHANGELOG.md", "Issues": "/issues"}
repository = os.environ.get("BOOK_REPOSITORY", "")
setup(project_urls={name: repository + page for name, page in pages.items() if repository})
