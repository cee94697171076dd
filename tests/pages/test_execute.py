"""Executing a notebook again changes nothing in the file but what came out differently."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from loading import load
from PIL import Image, ImageDraw

tool = load(Path(__file__).resolve().parents[2] / "book" / "_tools" / "execute.py")
# A gray ramp whose first pixel is given: one level is noise, all the others black another picture.
DRAW = """import io
import numpy as np
from IPython.display import Image, display
from PIL import Image as Picture

pixels = np.linspace(0, 255, 4800).reshape(60, 80).astype(np.uint8)
pixels[0, 0] = {first}
pixels[:, :{black}] = 0
stream = io.BytesIO()
Picture.fromarray(pixels).save(stream, "png")
display(Image(stream.getvalue()))
print("drawn")"""


def read_pixels(path: Path) -> np.ndarray:
    (output,) = [o for o in json.loads(path.read_text())["cells"][0]["outputs"] if "data" in o]
    with Image.open(io.BytesIO(base64.b64decode(output["data"]["image/png"]))) as image:
        return np.asarray(image)


def change_source(path: Path, **values: int) -> None:
    notebook = json.loads(path.read_text())
    notebook["cells"][0]["source"] = DRAW.format(**values)
    path.write_text(json.dumps(notebook))


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("book") / "chapter.ipynb"
    one = {"cell_type": "code", "id": "one", "metadata": {}, "outputs": [], "execution_count": None}
    notebook = {"cells": [one], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))
    change_source(path, first=0, black=0)
    tool.execute(path)
    return path


def test_an_unchanged_notebook_keeps_every_byte(executed):
    before = executed.read_bytes()
    tool.execute(executed)
    assert executed.read_bytes() == before


def test_a_picture_that_shows_the_same_is_kept(executed):
    change_source(executed, first=1, black=0)
    tool.execute(executed)
    assert read_pixels(executed)[0, 0] == 0


def test_another_picture_is_stored(executed):
    change_source(executed, first=1, black=40)
    tool.execute(executed)
    assert read_pixels(executed)[0, 0] == 0
    assert not read_pixels(executed)[:, :40].any()


def write(norm: str) -> str:
    image = Image.new("L", (400, 300), 255)
    draw = ImageDraw.Draw(image)
    draw.rectangle((20, 100, 380, 250), fill=0)  # so that a word is little of the ink
    draw.text((20, 20), norm, fill=0)
    stream = io.BytesIO()
    image.save(stream, "png")
    return base64.b64encode(stream.getvalue()).decode()


def test_a_word_that_changed_is_drawn_anew():
    old, new = write("rms norm"), write("RMS norm")
    assert tool.load_hook().difference(old, new) == ""  # so nbval sees no difference
    computed = [{"data": {"image/png": new}}]
    tool.keep_pictures([{"data": {"image/png": old}}], computed)
    assert computed == [{"data": {"image/png": new}}]


def picture(level: int) -> dict:
    stream = io.BytesIO()
    Image.fromarray(np.full((24, 24), level, np.uint8)).save(stream, "png")
    return {"data": {"image/png": base64.b64encode(stream.getvalue()).decode()}}


def test_each_picture_is_compared_with_its_own(executed):
    computed = [picture(201), {"text": "between"}, picture(90)]
    tool.keep_pictures([picture(200), picture(30)], computed)
    assert computed == [picture(200), {"text": "between"}, picture(90)]
    tool.keep_pictures([picture(91), picture(90), picture(1)], computed)
    assert computed == [picture(200), {"text": "between"}, picture(90)]
