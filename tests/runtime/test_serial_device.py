"""A board at a serial line: the calls of a device become words of UARTBone, and what is wrong with
the board is said by name. The board is a model here, with the emulator behind its registers; that
of ``boards/sim`` has pins.

Covers: runtime/serial_link.py.
"""

import os
import struct
import threading
import tty

import pytest

from emulator.device import EmulatorDevice
from hw.config import make_config
from hw.registers import host
from hw.registers.board import ACCELERATOR_BASE, MAGIC, SYSTEM_BASE, Control, Status, System
from hw.registers.map import register_map
from runtime import Accelerator
from runtime.device import open_device, require_device
from runtime.errors import AcceleratorError
from runtime.serial_device import SerialDevice
from runtime.serial_link import SerialLine, UartBone

CONFIG = make_config(variant="baseline", preset="tiny", axi_data_width=32)
MEMORY = 1 << 20


class ModelBoard:
    """What is behind a line: decodes commands, and answers."""

    def __init__(self, config=CONFIG, memory=MEMORY):
        self.map = register_map(config)
        self.by_offset = {register.offset: register for register in self.map}
        self.device = EmulatorDevice(config, memory)
        self.pending, self.waited, self.closed, self.resets = b"", 0.0, False, 0
        self.magic, self.ready, self.mute = MAGIC, 1, False
        self.values = {}

    def transfer(self, data, expected):
        self.pending += data
        answer = b""
        while len(self.pending) >= 6:
            command, count, address = struct.unpack(">BBI", self.pending[:6])
            count = count or 256
            if command == 1:
                if len(self.pending) < 6 + 4 * count:
                    break
                words = struct.unpack(f">{count}I", self.pending[6 : 6 + 4 * count])
                self.pending = self.pending[6 + 4 * count :]
                for number, word in enumerate(words):
                    self.write(4 * (address + number), word)
            else:
                assert command == 2
                self.pending = self.pending[6:]
                words = [self.read(4 * (address + number)) for number in range(count)]
                answer += struct.pack(f">{count}I", *words)
        return b"" if self.mute else answer

    def pause(self, seconds):
        self.waited += seconds

    def close(self):
        self.closed = True

    def write(self, address, word):
        if address < ACCELERATOR_BASE:
            return self.device.put(address, struct.pack("<I", word))
        if address == SYSTEM_BASE + 4 * System.CONTROL:
            self.resets += word >> Control.RESET & 1
            return None
        name = self.by_offset[address - ACCELERATOR_BASE].name
        if name == "INTERRUPT_STATUS":
            self.values = {}
        return self.device.write(name, word)

    def read(self, address):
        if address < ACCELERATOR_BASE:
            return struct.unpack("<I", self.device.get(address, 4))[0]
        if address >= SYSTEM_BASE:
            return {
                System.MAGIC: self.magic, System.MEMORY_BYTES: self.device.memory_bytes,
                System.CLOCK_HZ: 40_000_000, System.STATUS: self.status(),
            }[System(address - SYSTEM_BASE >> 2)]  # fmt: skip
        register = self.by_offset.get(address - ACCELERATOR_BASE)
        if register is None:
            return 0
        return self.values.get(register.name, register.reset)

    def status(self):
        """Looking at the interrupt is when the emulator runs."""
        if not self.values:
            try:
                self.values = self.device.wait()
            except TimeoutError:
                return self.ready << Status.MEMORY_READY
        return self.ready << Status.MEMORY_READY | 1 << Status.INTERRUPT


def test_memory(rng):
    board = ModelBoard()
    device = SerialDevice(CONFIG, MEMORY, line=board)
    assert device.memory_bytes == MEMORY and device.clock_hz == 40_000_000
    expected = bytearray(MEMORY)
    for _ in range(40):
        size = int(rng.integers(0, 3000))
        address = int(rng.integers(0, MEMORY - size))
        data = rng.bytes(size)
        device.put(address, data)
        expected[address : address + size] = data
        begin = max(0, address - 5)
        assert device.get(begin, size + 5) == expected[begin : begin + size + 5]
    assert board.device.get(0, MEMORY) == expected
    with pytest.raises(ValueError, match="8 bytes at 0xffffc are not in the memory of 1048576"):
        device.get(MEMORY - 4, 8)
    device.close()
    assert board.closed


def test_registers():
    board = ModelBoard()
    device = SerialDevice(CONFIG, MEMORY, line=board)
    device.write("MEM_BASE", 0x12345000)
    assert board.device._registers["MEM_BASE_LO"] == 0x12345000
    with pytest.raises(KeyError, match="the accelerator has no register NOTHING"):
        device.write("NOTHING", 1)
    with pytest.raises(ValueError, match="WATCHDOG: 4294967296 does not fit into 32 bits"):
        device.write("WATCHDOG", 1 << 32)
    with pytest.raises(ValueError, match="STATUS can only be read"):
        device.write("STATUS", 1)
    device.reset()
    assert board.resets == 1
    with pytest.raises(TimeoutError, match="no interrupt in 4000000 cycles; STATUS is"):
        device.wait(4_000_000)
    assert board.waited >= 0.1


def test_program(rng):
    """The same results as without a line in between, through the usual API."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    images = rng.standard_normal((3, 2, 4, 4)).astype("float32")

    def board(config, memory_bytes):
        return SerialDevice(config, memory_bytes, line=ModelBoard(config, 1 << 21))

    with Accelerator(CONFIG, device=board) as there, Accelerator(CONFIG) as here:
        assert (there.predict(model, images) == here.predict(model, images)).all()


def test_wrong_boards():
    def opened(config=CONFIG, memory=MEMORY, **members):
        board = ModelBoard()
        for name, value in members.items():
            setattr(board, name, value)
        return SerialDevice(config, memory, line=board)

    other = make_config(variant="baseline", preset="tiny", axi_data_width=32, columns=8)
    found, own = (int(c.hash[:8], 16) for c in (CONFIG, other))
    with pytest.raises(AcceleratorError) as error:
        opened(other)
    assert f"configuration {found:08x}, not {own:08x}" in str(error.value)
    assert "CORE0_ARRAY.COLUMNS is 4, not 8" in str(error.value)
    with pytest.raises(AcceleratorError, match="says 0x00000005, not 0x41444750: this bitstream"):
        opened(magic=5)
    with pytest.raises(AcceleratorError, match="has 1048576 bytes of memory, 2097152 are needed"):
        opened(memory=2 * MEMORY)
    with pytest.raises(AcceleratorError, match="memory does not become ready"):
        opened(ready=0)
    with pytest.raises(AcceleratorError, match="has sent 0 bytes, not 4, for a read at 0x90000000"):
        opened(mute=True)


def test_pseudo_terminal():
    """A port of the system: bytes go through unchanged, in both directions."""
    board = ModelBoard()
    master, slave = os.openpty()
    tty.setraw(master)

    def serve():
        try:
            while data := os.read(master, 4096):
                os.write(master, board.transfer(data, 0))
        except OSError:
            pass

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    device = open_device(f"serial:{os.ttyname(slave)}@115200", CONFIG, 1 << 12)
    data = bytes(range(256)) * 8
    device.put(3, data)
    assert device.get(3, len(data)) == data
    values = host.field_values(device._map, "STATUS", device.read("STATUS"))
    assert not values["BUSY"]
    board.mute = True
    line = SerialLine(os.ttyname(slave), 115200, timeout_seconds=0.05)
    with pytest.raises(AcceleratorError, match="has sent 0 bytes, not 8, for a read at 0x10"):
        UartBone(line).read(16, 2)
    line.close()
    device.close()
    os.close(slave)
    os.close(master)
    server.join(5)


def test_bad_ports(tmp_path):
    require_device("serial:/dev/ttyUSB0@3000000")
    with pytest.raises(ValueError, match=r"one of emulator, rtl or serial:PORT, not 'serial:'"):
        require_device("serial:")
    with pytest.raises(ValueError, match="the rate must be a number, not 'fast'"):
        open_device("serial:/dev/null@fast", CONFIG, 16)
    with pytest.raises(AcceleratorError, match="cannot be opened: No such file"):
        open_device(f"serial:{tmp_path}/none", CONFIG, 16)
    with pytest.raises(AcceleratorError, match="the system has no rate of 12345 bits per second"):
        open_device("serial:/dev/null@12345", CONFIG, 16)
    (tmp_path / "file").touch()
    with pytest.raises(AcceleratorError, match="is no serial port"):
        open_device(f"serial:{tmp_path}/file", CONFIG, 16)
