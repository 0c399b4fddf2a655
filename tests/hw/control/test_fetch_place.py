"""Where a program may lie: its window, the end of the address space, its alignment.

Covers: hw/control/fetch.py, hw/control/command_reader.py.
"""

import pytest

from hw.config import make_config
from hw.isa.error_codes import ErrorCode
from tests.hw.control.test_fetch import BASE, Bench


@pytest.mark.parametrize(
    ("address", "size", "window", "code", "place"),
    [
        (1, 64, 1 << 20, ErrorCode.UNALIGNED_ADDRESS, 1),
        (32, 64, 1 << 20, ErrorCode.UNALIGNED_ADDRESS, 32),
        (32, 64, 0, ErrorCode.UNALIGNED_ADDRESS, 32),
        (0, 64, 63, ErrorCode.MEMORY_WINDOW, 64),
        (64, 65, 128, ErrorCode.MEMORY_WINDOW, 129),
        (128, 0, 64, ErrorCode.MEMORY_WINDOW, 128),
        (0, 1, 0, ErrorCode.MEMORY_WINDOW, 1),
        (0xFFFFFFC0, 64, 0xFFFFFFFF, ErrorCode.MEMORY_WINDOW, 0x1_0000_0000),
        (0xFFFFFFC0, 0xFFFFFFFF, 0xFFFFFFFF, ErrorCode.MEMORY_WINDOW, 0x1_FFFF_FFBF),
        (64, 0xFFFFFFC0, 0xFFFFFFFF, ErrorCode.MEMORY_WINDOW, 0x1_0000_0000),
        (0xFFFFFFC0, 65, 1 << 32, ErrorCode.MEMORY_WINDOW, 0x1_0000_0001),
    ],
)
def test_a_program_in_the_wrong_place(address, size, window, code, place, seed):
    config = make_config(preset="tiny", axi_address_width=40)
    bench = Bench(config, seed)

    async def process(bench):
        await bench.start(address=address, size=size, window=window)
        for _ in range(30):
            await bench.step()
        assert bench.errors == [(code, BASE + place)]
        assert bench.requested == []

    bench.simulate(process)


@pytest.mark.parametrize(
    ("address", "size", "window"),
    [
        (0, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFF80, 64, 0xFFFFFFFF),
        (0xFFFFFF80, 0x7F, 0xFFFFFFFF),
        (0x40, 0xC0, 0x100),
        (0xFFFFFFC0, 64, 1 << 32),
    ],
)
def test_the_whole_window_may_be_program(address, size, window, seed):
    config = make_config(preset="tiny", axi_address_width=40)
    bench = Bench(config, seed)

    async def process(bench):
        count = min(size // 64, 6)
        await bench.start(address=address, size=size, window=window, base=0xFE_0000_0000)
        await bench.until(lambda: len(bench.taken) == count)
        assert bench.errors == []

    bench.simulate(process)


@pytest.mark.parametrize("width", [32, 40, 64])
def test_end_of_the_address_space(width, seed):
    """A program may end there but not go on at address 0."""
    bench = Bench(make_config(preset="tiny", axi_address_width=width), seed)

    async def process(bench):
        top, end = 1 << width, 0xFFFF_FFC0
        base = top - 0x2000
        await bench.start(base=base, address=0x1F80, size=0x80)
        await bench.until(lambda: len(bench.taken) == 2)
        assert bench.errors == []
        await bench.start(base=base, address=0x1F00, size=0x40)
        await bench.until(lambda: bench.errors)
        assert bench.errors == [(ErrorCode.PROGRAM_END, base + 0x1F40)]
        for address, size in (
            (0x1F80, 0x81),
            (0x1FC0, 0x80),
            (0x2000, 0x40),
            (0x2040, 0),
            (end, end),
        ):
            await bench.start(base=base, address=address, size=size)
            for _ in range(30):
                await bench.step()
            behind = base + address + size & (1 << 64) - 1
            assert bench.errors == [(ErrorCode.MEMORY_WINDOW, behind)], hex(address)
            assert bench.requested == []

    bench.simulate(process)
