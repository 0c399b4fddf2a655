"""The host initialises LiteDRAM's memory: which words it writes, and what it leaves out."""

import struct

from boards.litex_soc.designs import LiteXDesign
from boards.litex_soc.memory_start import start_memory

COMMAND, ADDRESS, CONTROL = 0x104, 0x10C, 0x100
CSRS = {
    "sdram_dfii_control": CONTROL, "sdram_dfii_pi0_command": COMMAND,
    "sdram_dfii_pi0_address": ADDRESS,
}  # fmt: skip
SEQUENCE = [
    ("Bring CKE high", 0, 0, "DFII_CONTROL_CKE|DFII_CONTROL_RESET_N", 20000),
    ("Precharge All", 0x400, 0, "DFII_COMMAND_RAS|DFII_COMMAND_WE|DFII_COMMAND_CS", 0),
    ("Load Mode Register / Reset DLL", 0x121, 0, "DFII_COMMAND_WE", 200),
    ("Load Mode Register", 0x21, 1, "DFII_COMMAND_RAS|DFII_COMMAND_CAS|DFII_COMMAND_WE", 200),
]


class Recorder:
    def __init__(self):
        self.said = []

    def transfer(self, data, expected):
        command, count, address = struct.unpack(">BBI", data[:6])
        assert (command, expected, len(data)) == (1, 0, 6 + 4 * count)
        self.said.append((4 * address, list(struct.unpack(f">{count}I", data[6:]))))
        return b""

    def pause(self, seconds):
        self.said.append(seconds)


def test_sequence():
    line = Recorder()
    design = LiteXDesign(top="", files={}, csrs=CSRS, memory_sequence=SEQUENCE)
    start_memory(line, design, clock_hz=40_000_000)
    assert line.said == [
        (CONTROL, [10]), 500e-6,
        (ADDRESS, [0x400, 0]), (COMMAND, [11, 1]), 0,
        (ADDRESS, [0x21, 1]), (COMMAND, [14, 1]), 5e-6,
        (CONTROL, [1]),
    ]  # fmt: skip
