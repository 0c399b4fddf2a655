"""Ctrl-C in the command line of float32 training.

Covers: algorithms/__main__.py.
"""

import sys

TRAIN = [sys.executable, "-m", "algorithms"]


def test_while_libraries_are_loaded(interrupted, loaded):
    done = interrupted([*TRAIN, "models"], when=loaded("libtorch"))
    assert (done.status, done.output, done.errors) == (130, "", "algorithms: interrupted\n")


def test_digits(interrupted, tmp_path):
    done = interrupted([*TRAIN, "digits", "--output", str(tmp_path / "weights.npz")])
    assert (done.status, done.errors) == (130, "algorithms: interrupted\n")
    assert done.output.startswith("epoch   1/20")
    assert not list(tmp_path.iterdir())


def test_training_says_that_it_goes_on(interrupted, tmp_path):
    done = interrupted(
        [*TRAIN, "train", "--epochs", "40", "--device", "cpu", "--output", str(tmp_path)]
    )
    assert (done.status, done.errors) == (
        130,
        "algorithms: interrupted; the same command goes on\n",
    )
    assert not list(tmp_path.glob("*.part"))
