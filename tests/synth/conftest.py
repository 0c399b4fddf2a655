"""A tiny standard-cell library whose numbers can be worked out by hand."""

from pathlib import Path

import pytest

from synth import liberty

TINY = Path(__file__).with_name("tiny.lib")


@pytest.fixture(scope="session")
def tiny_path() -> Path:
    return TINY


@pytest.fixture(scope="session")
def tiny():
    return liberty.read(TINY)
