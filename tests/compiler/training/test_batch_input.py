"""What a batch must be: shapes, types, finite numbers, and the message where it is not."""

import numpy as np
import pytest
from torch import nn

from compiler.adagp.compile import compile_adagp
from compiler.training.compile import compile_training
from hw.config import make_config

CONFIG = make_config(variant="low", preset="tiny")
IMAGES, LABELS = np.zeros((4, 6, 5, 2), np.float32), np.zeros(4, np.int64)


def classifier():
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3 * 4 * 3, 7))


@pytest.fixture(scope="module")
def labelled():
    return compile_training(classifier(), CONFIG, (2, 6, 5), images=4)


def squared(model, shape=(2, 6, 5)):
    return compile_training(model, CONFIG, shape, images=4, loss="mean_squared_error")


def values_of(program, tensor, batch):
    """Real numbers of ``tensor``, from where ``batch`` puts them."""
    memory = bytearray(program.memory_size)
    for offset, data in batch:
        memory[offset : offset + len(data)] = data
    return program.tensors[tensor].values(program.tensors[tensor].unpack(memory))


def spoiled(place, value, dtype=np.float32):
    images = IMAGES.astype(dtype)
    images[place] = value
    return images


NAN = np.float32(np.nan)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            np.zeros((4, 2, 6, 5)), LABELS,
            "images must have shape (images, height, width, channels) = (4, 6, 5, 2), "
            "not (4, 2, 6, 5)",
        ),
        (np.zeros((4, 60)), LABELS, "(4, 6, 5, 2), not (4, 60)"),
        (
            IMAGES[:3], LABELS[:3],
            "images of a batch of 3: the program was compiled for batches of 4",
        ),
        (IMAGES, LABELS[:3], "labels of a batch of 3: the program was compiled for batches of 4"),
        (
            IMAGES, LABELS[:, np.newaxis],
            "labels must have shape (images,) = (4,), not (4, 1)",
        ),
        (IMAGES, np.zeros(4), "labels must be integers, not float64"),
        (IMAGES, np.zeros(4, bool), "labels must be integers, not bool"),
        (IMAGES, np.array([0, 6, 7, 0]), "labels[2] is 7; it must be from 0 to 6"),
        (IMAGES, np.array([0, -100, 0, 0]), "labels[1] is -100; it must be from 0 to 6"),
        (spoiled((1, 2, 3, 1), NAN), LABELS, "images[1, 2, 3, 1] is nan, which is not finite"),
        (spoiled((0, 0, 4, 0), -np.inf), LABELS, "images[0, 0, 4, 0] is -inf, which is not finite"),
        (
            spoiled((0, 0, 0, 0), 1e39, np.float64), LABELS,
            "images[0, 0, 0, 0] is 1e+39, which is too large for bf16",
        ),
        (
            IMAGES.astype(np.uint8), LABELS,
            "images must be real numbers (float16, float32 or float64), or bf16 codes (uint16), "
            "not uint8",
        ),
        (IMAGES.astype(np.int16), LABELS, "or bf16 codes (uint16), not int16"),
    ],
)  # fmt: skip
def test_labelled_images_are_checked(labelled, images, labels, message):
    with pytest.raises(ValueError) as caught:
        labelled.batch(images, labels)
    assert message in str(caught.value)


def test_what_arrives_of_labelled_images(labelled, rng):
    images = rng.integers(-8, 9, IMAGES.shape) / 8
    labels = rng.integers(0, 7, 4)
    for given in (labels, labels.astype(np.int32), labels.astype(np.uint8)):
        batch = labelled.batch(images, given)
        np.testing.assert_array_equal(values_of(labelled, "input_1", batch), images)
        assert values_of(labelled, "targets", batch).ravel().tolist() == labels.tolist()
    # Codes are taken as they are, NaN too.
    codes = labelled.tensors["input_1"].unpack(bytes(labelled.memory_size)) + np.uint16(0x7FC0)
    assert np.isnan(values_of(labelled, "input_1", labelled.batch(codes, labels))).all()


@pytest.mark.parametrize("flat", [False, True])
def test_targets_of_maps(flat, rng):
    """(N, H, W, C) as images, or vectors in torch's order, which has channels outermost."""
    program = squared(nn.Sequential(nn.Conv2d(2, 3, 3), *([nn.Flatten()] if flat else [])))
    maps = rng.integers(-8, 9, (4, 4, 3, 3)).astype(np.float64)
    given = np.moveaxis(maps, 3, 1).reshape(4, 36) if flat else maps
    batch = program.batch(IMAGES, given)
    np.testing.assert_array_equal(values_of(program, "targets", batch), maps)


@pytest.mark.parametrize(
    ("model", "shape", "targets", "message"),
    [
        (
            nn.Conv2d(2, 5, 3), (2, 6, 5), np.zeros((4, 5, 4, 3)),
            "targets must have shape (images, height, width, channels) = (4, 4, 3, 5), "
            "not (4, 5, 4, 3)",
        ),
        (nn.Conv2d(2, 5, 3), (2, 6, 5), np.zeros((4, 60)), "(4, 4, 3, 5), not (4, 60)"),
        (
            nn.Linear(6, 1), (6,), np.zeros(4),
            "targets must have shape (images, features) = (4, 1), not (4,)",
        ),
        (nn.Linear(6, 2), (6,), np.zeros((2, 2)), "targets of a batch of 2: the program"),
        (nn.Linear(6, 2), (6,), np.full((4, 2), np.inf), "targets[0, 0] is inf, which is not"),
        (
            nn.Linear(6, 2), (6,), np.full((4, 2), 1e39),
            "targets[0, 0] is 1e+39, which is too large for float32",
        ),
        (nn.Linear(6, 2), (6,), np.full((4, 2), 1j), "targets must be real numbers, not complex"),
    ],
)  # fmt: skip
def test_targets_are_checked(model, shape, targets, message):
    program = squared(nn.Sequential(model), shape)
    images = IMAGES if len(shape) == 3 else np.zeros((4, *shape))
    with pytest.raises(ValueError) as caught:
        program.batch(images, targets)
    assert message in str(caught.value)


def test_vectors(rng):
    program = squared(nn.Sequential(nn.Linear(6, 2)), (6,))
    vectors = rng.integers(-8, 9, (4, 6)) / 4
    for given in (vectors, vectors[:, np.newaxis, np.newaxis]):
        batch = program.batch(given, np.zeros((4, 2)))
        np.testing.assert_array_equal(values_of(program, "input_1", batch)[:, 0, 0], vectors)
    with pytest.raises(ValueError, match=r"\(images, features\) = \(4, 6\), not \(4, 5\)"):
        program.batch(vectors[:, 1:], np.zeros((4, 2)))


def test_both_places_of_a_run_are_checked():
    program = compile_adagp(classifier(), CONFIG, (2, 6, 5), images=4)
    for number in (0, 1):
        with pytest.raises(ValueError, match="images of a batch of 2"):
            program.batch(IMAGES[:2], LABELS[:2], number)
    places = [{offset for offset, _ in program.batch(IMAGES, LABELS, n)} for n in (0, 1)]
    assert not places[0] & places[1]
