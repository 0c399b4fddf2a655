"""Digits on a canvas: what a small detector finds, class and position."""

from dataclasses import dataclass

import numpy as np

__all__ = ["BACKGROUND", "CELL", "DIGIT", "UNIT", "Canvases", "Score", "canvases", "score"]

#: Pixels of a digit and of a cell of the canvas, each way.
DIGIT = CELL = 8
#: The class of a cell in which no digit has its centre.
BACKGROUND = 10
#: Offsets of a centre from that of its cell are in units of so many pixels.
UNIT = 3.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Canvases:
    """Canvases, and what a detector is to say of each of their cells.

    Members
    -------
    images : (N, H, W, 1) float32
    classes : (N, H / CELL, W / CELL): the digit whose centre is in the cell, else BACKGROUND
    offsets : (N, H / CELL, W / CELL, 2) float32: how far the centre is from that of the cell, down
        and to the right, in UNIT; 0 in BACKGROUND
    """

    images: np.ndarray
    classes: np.ndarray
    offsets: np.ndarray

    def sampled(self, rng: np.random.Generator, share: float, ignored: int) -> np.ndarray:
        """``classes`` with ``ignored`` in place of BACKGROUND, but for a random ``share`` of it:
        otherwise a detector learns for long that there is nothing."""
        left_out = (self.classes == BACKGROUND) & (rng.random(self.classes.shape) >= share)
        return np.where(left_out, ignored, self.classes)


def canvases(rng, digits, labels, count: int, size: int = 2 * CELL) -> Canvases:
    """``count`` canvases of ``size`` pixels each way, with one of the ``digits`` anywhere.

    Parameters
    ----------
    rng : a NumPy generator
    digits, labels : (M, DIGIT, DIGIT, 1) numbers from 0 to 1, (M,)

    Raises
    ------
    ValueError
        for a size that is no multiple of CELL.
    """
    if size < CELL or size % CELL:
        raise ValueError(f"size must be a multiple of {CELL}, not {size}")
    cells = size // CELL
    images = np.zeros((count, size, size, 1), np.float32)
    classes = np.full((count, cells, cells), BACKGROUND)
    offsets = np.zeros((count, cells, cells, 2), np.float32)
    for number in range(count):
        corner, chosen = rng.integers(0, size - DIGIT + 1, 2), rng.integers(len(digits))
        rows, columns = (slice(begin, begin + DIGIT) for begin in corner)
        images[number, rows, columns] = digits[chosen]
        centre = corner + (DIGIT - 1) / 2
        row, column = (centre // CELL).astype(int)
        classes[number, row, column] = labels[chosen]
        middle = np.array([row, column]) * CELL + (CELL - 1) / 2
        offsets[number, row, column] = (centre - middle) / UNIT
    return Canvases(images=2 * images - 0.5, classes=classes, offsets=offsets)


@dataclass(frozen=True, kw_only=True)
class Score:
    """How good detections are.

    Members
    -------
    found : share of the digits whose cell has their class
    false : share of the other cells in which a digit was seen
    pixels : mean distance of the centre that was said from the digit's
    """

    found: float
    false: float
    pixels: float


def score(given: Canvases, logits, offsets) -> Score:
    """Of logits (N, classes, rows, columns) and offsets (N, 2, rows, columns)."""
    said, digit = np.asarray(logits).argmax(1), given.classes != BACKGROUND
    away = np.moveaxis(np.asarray(offsets), 1, 3) - given.offsets
    return Score(
        found=float((said == given.classes)[digit].mean()),
        false=float((said != BACKGROUND)[~digit].mean()),
        pixels=float(UNIT * np.linalg.norm(away, axis=-1)[digit].mean()),
    )
