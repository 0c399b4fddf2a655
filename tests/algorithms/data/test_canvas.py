"""Digits on a canvas: where they lie, what a detector is to say of it, and how it is judged."""

import numpy as np
import pytest

from algorithms.data.canvas import BACKGROUND, CELL, UNIT, canvases, score

#: Every digit is a square of its own grey.
DIGITS = np.broadcast_to(np.linspace(0.1, 1, 10)[:, None, None, None], (10, 8, 8, 1))


@pytest.fixture
def given(rng):
    return canvases(rng, DIGITS, np.arange(10), 60, 24)


def test_cells(given):
    assert given.images.shape == (60, 24, 24, 1) and given.offsets.shape == (60, 3, 3, 2)
    for image, classes, offsets in zip(given.images, given.classes, given.offsets, strict=True):
        rows, columns = np.nonzero(image[..., 0] > -0.5)
        assert len(rows) == 64
        ((row, column),) = np.argwhere(classes != BACKGROUND)
        grey = (image.max() + 0.5) / 2
        assert grey == pytest.approx(DIGITS[classes[row, column]].max())
        centre = np.array([row, column]) * CELL + 3.5 + UNIT * offsets[row, column]
        assert centre == pytest.approx([rows.mean(), columns.mean()])
        assert np.abs(UNIT * offsets).max() <= CELL / 2
        assert not offsets[classes == BACKGROUND].any()


def test_where_they_lie(rng):
    """Everywhere, the edges included."""
    images = canvases(rng, DIGITS, np.arange(10), 600, 16).images
    corners = {tuple(np.argwhere(image[..., 0] > -0.5)[0]) for image in images}
    assert corners == {(row, column) for row in range(9) for column in range(9)}


def test_some_of_the_background_counts(given, rng):
    digit = given.classes != BACKGROUND
    sampled = given.sampled(rng, 0.25, -1)
    assert (sampled[digit] == given.classes[digit]).all()
    assert set(sampled[~digit]) == {BACKGROUND, -1}
    assert (sampled[~digit] == BACKGROUND).mean() == pytest.approx(0.25, abs=0.1)
    assert (given.sampled(rng, 1.0, -1) == given.classes).all()


def test_score(given):
    logits = np.moveaxis(np.eye(11)[given.classes], 3, 1)
    offsets = np.moveaxis(given.offsets, 3, 1)
    perfect = score(given, logits, offsets)
    assert (perfect.found, perfect.false, perfect.pixels) == (1, 0, pytest.approx(0, abs=1e-6))
    blind = score(given, np.roll(logits, 1, axis=1), offsets + 1)
    assert (blind.found, blind.false) == (0, 1)
    assert blind.pixels == pytest.approx(UNIT * 2**0.5)


def test_message(rng):
    with pytest.raises(ValueError, match="size must be a multiple of 8, not 20"):
        canvases(rng, DIGITS, np.arange(10), 1, 20)
