"""The LiteX SoC in the simulator; its network is in tests/boards/litex_soc.

Covers: boards/sim/litex.py.
"""

import pytest

from boards.catalogue import board_by_name
from boards.sim.litex import compile_litex
from boards.sim.simulator import BoardProcess
from runtime.serial_device import SerialDevice
from tests.boards.litex_soc.test_designs import SMALL


@pytest.mark.long
def test_memory(rng):
    pytest.importorskip("litex")
    config = board_by_name("ulx3s").config(settings=SMALL, baud=10_000_000)
    program, start = compile_litex(config)
    with BoardProcess(program, clock_hz=config.clock_hz) as line:
        start(line)
        device = SerialDevice(config.accelerator, 1 << 24, line=line)
        assert device.memory_bytes == 32 << 20
        data = rng.bytes(2000)
        for address in (1, (32 << 20) - 2001):
            device.put(address, data)
            assert device.get(address - 1, 2002)[1:2001] == data
        status = line.status()
    assert (status["violations"], status["framing_errors"]) == ("0", "0")
