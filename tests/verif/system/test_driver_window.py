"""The driver's description of the memory window, up to 4 GiB.

Covers: verif/system/driver.py.
"""

import asyncio
import re

import pytest

from hw.bus.signatures import RESP_OKAY
from hw.config import make_config
from verif.system.driver import Driver


class Bus:
    """Keeps what is written, by offset."""

    def __init__(self):
        self.written = {}

    async def write(self, offset, value):
        assert 0 <= value < 1 << 32, f"{value:#x} at {offset:#x}"
        self.written[offset] = value
        return RESP_OKAY


def start(size):
    driver = Driver(make_config(preset="tiny"), Bus())
    asyncio.run(driver.start(base=0x3000, size=size, program=0, program_size=64))
    return [driver.bus.written[driver.map[name].offset] for name in ("MEM_SIZE", "MEM_SIZE_HI")]


@pytest.mark.parametrize(
    ("size", "low", "high"), [(0, 0, 0), (0xFFFFFFFF, 0xFFFFFFFF, 0), (1 << 32, 0, 1)]
)
def test_size_of_the_window(size, low, high):
    assert start(size) == [low, high]


@pytest.mark.parametrize("size", [-1, (1 << 32) + 1])
def test_a_window_that_is_too_large(size):
    message = re.escape(f"size must be from 0 to 4294967296 bytes (4 GiB), not {size}")
    with pytest.raises(ValueError, match=message):
        start(size)
