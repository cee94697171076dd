"""What a file cannot say: addresses, which follow from that of the repository."""

import os
import re
from pathlib import Path

from setuptools import setup

repository = os.environ.get("BOOK_REPOSITORY", "").removesuffix("/").removesuffix(".git")
links, text = {}, Path("README.md").read_text(encoding="utf-8")
if repository:
    owner, name = repository.split("/")[-2:]
    links = {
        "Repository": repository,
        "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    if repository.startswith("https://github.com/"):  # where publish.yml puts the book
        host = f"{owner.lower()}.github.io"
        links["Documentation"] = f"https://{host}{'' if name.lower() == host else f'/{name}'}"
    # An index shows the README, and has none of the files that it links.
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{repository}/raw/HEAD/", text)
    text = re.sub(r"(?<!!)(\[[^]]*\]\()(?!https?:)", rf"\1{repository}/blob/HEAD/", text)
    text = text.replace(" ADDRESS ", f" {repository} ")
setup(project_urls=links, long_description=text, long_description_content_type="text/markdown")
