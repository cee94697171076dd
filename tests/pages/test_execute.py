"""Executing a notebook again changes nothing in the file but what came out differently."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
from loading import load
from PIL import Image, ImageDraw

tool = load(Path(__file__).resolve().parents[2] / "book" / "_tools" / "execute.py")
DRAW = """import numpy as np
from IPython.display import Image, display
from PIL import Image as Picture
import io

stream = io.BytesIO()
Picture.fromarray(np.linspace(0, 255, 4800).reshape(60, 80).astype(np.uint8)).save(stream, "png")
display(Image(stream.getvalue()))
print("drawn")"""


def test_an_unchanged_notebook_keeps_every_byte(tmp_path):
    path = tmp_path / "chapter.ipynb"
    one = {"cell_type": "code", "id": "one", "metadata": {}, "outputs": [], "source": DRAW}
    one["execution_count"] = None
    notebook = {"cells": [one], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))
    tool.execute(path)
    before = path.read_bytes()
    assert b"image/png" in before and b"drawn" in before
    tool.execute(path)
    assert path.read_bytes() == before


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


def test_each_picture_is_compared_with_its_own():
    computed = [picture(201), {"text": "between"}, picture(90)]
    tool.keep_pictures([picture(200), picture(30)], computed)
    assert computed == [picture(200), {"text": "between"}, picture(90)]
    tool.keep_pictures([picture(91), picture(90), picture(1)], computed)
    assert computed == [picture(200), {"text": "between"}, picture(90)]
