"""Pen trajectories that need no download: the outlines of letters in fonts beside matplotlib."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.ttLib import TTFont
from torch import Tensor

CHARACTERS = string.ascii_letters + string.digits
FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)
Command = tuple[str, tuple[tuple[float, float] | None, ...]]
PIECES = 8  # points taken from each curve or line before resampling


def _font_folder() -> Path:
    spec = find_spec("matplotlib")  # looks for it without importing it
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "matplotlib: not installed; its fonts are the data. Run pip install matplotlib"
        )
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"


def _bend(start: np.ndarray, control: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Points of a quadratic curve, without its start; a control point midway gives a line."""
    t = np.linspace(0, 1, PIECES + 1)[1:, None]
    return (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end


def _record(font: TTFont, character: str) -> list[Command]:
    """What a pen is told to do to draw a character."""
    name = font.getBestCmap().get(ord(character))
    if name is None:
        raise ValueError(f"character: got {character!r}, which the font lacks; take another")
    glyphs = font.getGlyphSet()
    pen = DecomposingRecordingPen(glyphs)
    glyphs[name].draw(pen)
    commands: list[Command] = pen.value
    return commands


def trace_contours(commands: Sequence[Command]) -> list[np.ndarray]:
    """Follow a drawing, each line and curve in the same number of points.

    The pen is therefore fast on long straight lines and slow in tight curves, as a hand is.

    Args:
        commands: "moveTo", "lineTo", "qCurveTo" and "closePath" with their points, as the pens
            of fontTools record them.

    Returns:
        one (points, 2) array for each closed contour.

    Example:
        >>> there = [("moveTo", ((0, 0),)), ("lineTo", ((8, 0),)), ("closePath", ())]
        >>> trace_contours(there)[0][:4].tolist()
        [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]
    """
    contours: list[list[np.ndarray]] = []
    for command, points in commands:
        p = np.array([q for q in points if q is not None], dtype=np.float64)
        if points and points[-1] is None:  # a closed curve of control points alone
            p = np.concatenate([p, (p[-1:] + p[:1]) / 2])
            contours.append([p[-1:]])
        here = contours[-1][-1][-1] if contours else p[0]
        if command == "moveTo":
            contours.append([p])
        elif command == "lineTo":
            contours[-1].append(_bend(here, (here + p[0]) / 2, p[0]))
        elif command == "qCurveTo":
            for i in range(len(p) - 1):  # fonts leave out the point between two control points
                end = p[-1] if i == len(p) - 2 else (p[i] + p[i + 1]) / 2
                contours[-1].append(_bend(here, p[i], end))
                here = end
        elif command == "closePath" and (here != contours[-1][0][0]).any():
            end = contours[-1][0][0]
            contours[-1].append(_bend(here, (here + end) / 2, end))
    return [np.concatenate(parts) for parts in contours]


def resample(contour: np.ndarray, steps: int) -> np.ndarray:
    """Take `steps` + 1 points from a contour, evenly by index; the displacements, (steps, 2).

    Example:
        >>> resample(np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 4.0]]), 4).tolist()
        [[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 2.0]]
    """
    place = np.linspace(0, len(contour) - 1, steps + 1)
    whole = np.arange(len(contour))
    points = np.stack([np.interp(place, whole, contour[:, i]) for i in (0, 1)], axis=1)
    return np.diff(points, axis=0)


def _length(contour: np.ndarray) -> float:
    return float(np.linalg.norm(np.diff(contour, axis=0), axis=1).sum())


@cache
def _outlines(steps: int) -> Tensor:
    sequences = []
    for name in FONTS:
        with TTFont(_font_folder() / f"{name}.ttf", lazy=True) as font:
            scale = font["head"].unitsPerEm
            for character in CHARACTERS:
                contours = trace_contours(_record(font, character))
                longest = max(contours, key=_length)
                sequences.append(resample(longest / scale, steps))
    return torch.tensor(np.stack(sequences), dtype=torch.float32)


def load_outlines(steps: int = 40) -> Tensor:
    """Trace the longest contour of 62 characters in 16 fonts as displacements of a pen.

    Returns:
        a fresh copy, font after font; the displacements have a mean square of 1.

    Shape:
        (992, steps, 2).

    Conventions:
        a stand-in for handwriting: a printed outline runs around a stroke, a pen along it.

    Source:
        the DejaVu fonts (license of Bitstream Vera) and the STIX fonts (SIL Open Font License
        1.1), as shipped with matplotlib.

    Example:
        >>> tuple(load_outlines().shape)
        (992, 40, 2)
    """
    if steps < 2:
        raise ValueError(f"steps: got {steps}; expected 2 or more")
    outlines = _outlines(steps)
    return outlines / outlines.square().mean().sqrt()
