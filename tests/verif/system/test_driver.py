"""What the driver writes and says, on a bus played by Python."""

import asyncio

import pytest

from hw.config import make_config
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit, register_map
from verif.system.driver import Driver, RegisterAccessError

CONFIG = make_config(variant="max", preset="tiny")
MAP = register_map(CONFIG)


class Bus:
    """Registers that keep what is written; ``log`` has the writes by name."""

    def __init__(self, **values):
        self.names = {register.offset: register.name for register in MAP}
        self.values = values
        self.log = []

    async def read(self, address):
        value = self.values.get(self.names[address], 0)
        return (value.pop(0) if isinstance(value, list) else value), 0

    async def write(self, address, value):
        self.log.append((self.names[address], value))
        return 2 if self.values.get("refuses") == self.names[address] else 0


def drive(bus, name, *arguments, **options):
    return asyncio.run(getattr(Driver(CONFIG, bus), name)(*arguments, **options))


@pytest.mark.parametrize("watchdog", [0, 1000])
def test_start_sets_the_watchdog_first(watchdog):
    bus = Bus()
    options = {"watchdog": watchdog} if watchdog else {}
    drive(bus, "start", base=0x1000, size=64, program=0, program_size=64, **options)
    assert bus.log[0] == ("WATCHDOG", watchdog)
    assert bus.log[-2:] == [("INTERRUPT_ENABLE", 0b1111), ("CONTROL", 1)]


def test_stop():
    bus = Bus()
    drive(bus, "stop")
    assert bus.log == [("CONTROL", 2)]
    with pytest.raises(RegisterAccessError, match="write of CONTROL: response 2"):
        drive(Bus(refuses="CONTROL"), "stop")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0b000000, "no program has run since the reset"),
        (0b000010, "the program has ended"),
        (0b010010, "the program was stopped by CONTROL.STOP"),
        (0b110010, "the program was stopped by CONTROL.STOP; the bus still owes answers"),
        (
            0b000110,
            "CORE0_POST ended the program with WATCHDOG at 0x100000040: " + ErrorCode.WATCHDOG.doc,
        ),
    ],
)
def test_wait_says_how_the_run_has_ended(status, text):
    bus = Bus(
        STATUS=[1, 9, status], ERROR_CODE=int(ErrorCode.WATCHDOG), ERROR_UNIT=int(Unit.CORE0_POST),
        ERROR_ADDRESS_LO=0x40, ERROR_ADDRESS_HI=1,
    )  # fmt: skip
    assert drive(bus, "wait", 3) == text
    assert bus.log == []


def test_wait_gives_up():
    with pytest.raises(TimeoutError, match="not ended after 2 reads of STATUS: BUSY, WAITING"):
        drive(Bus(STATUS=[1, 9, 2]), "wait", 2)
