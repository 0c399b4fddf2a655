"""Driver, stimulus and expected writes for benches of :class:`hw.post.PostEngine`.

The environment variable ``POST_CONFIG`` holds the fields of the configuration as JSON.
"""

import json
import os
import random
from dataclasses import dataclass, field

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from golden import post as gp
from golden.formats import FORMATS as GOLDEN_FORMATS
from hw.bus import ACCUMULATOR_READ_LATENCY
from hw.commands import POST_LOOPS, POST_OUTPUT_LOOPS, Opcode, Pool, encode
from hw.config import BUFFER_ADDRESS_WIDTH, make_config

__all__ = ["HEADER_BITS", "Bench", "check", "configuration", "expected", "random_command", "start"]

ENTRIES = 512
HEADER_BITS = 8 + 1 + 32 + 32
SPECIAL = (0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x00800000, 0x80800000)


def configuration():
    config = make_config(**json.loads(os.environ["POST_CONFIG"]))
    return config, config.cores[0]


@dataclass(kw_only=True)
class Bench:
    """Both memories of the engine, with stalls; records every write.

    ``busy_read`` and ``busy_write`` are the probabilities that a port does not accept.
    """

    dut: object
    rng: random.Random
    memory: np.ndarray
    busy_read: float = 0.0
    busy_write: float = 0.0
    cycle: int = 0
    writes: list = field(default_factory=list)
    flags: int = 0
    errors: list = field(default_factory=list)
    done: list = field(default_factory=list)
    reads: int = 0
    stalls: int = 0
    _data: list = field(default_factory=lambda: [None] * ACCUMULATOR_READ_LATENCY)
    _held: tuple | None = None

    async def step(self):
        """One cycle: look at the outputs in its middle, answer, go to the middle of the next."""
        dut = self.dut
        read_ready = self.rng.random() >= self.busy_read
        write_ready = self.rng.random() >= self.busy_write
        dut.accumulator__ready.value = int(read_ready)
        dut.write__ready.value = int(write_ready)
        data = self._data.pop(0)
        width = self.memory.shape[2] * 32
        dut.accumulator__data.value = self.rng.getrandbits(width) if data is None else data

        answer = None
        if dut.accumulator__valid.value:
            if read_ready:
                self.reads += 1
                row = self.memory[
                    int(dut.accumulator__bank.value), int(dut.accumulator__address.value)
                ]
                answer = int.from_bytes(row.tobytes(), "little")
        self._data.append(answer)

        write = None
        if dut.write__valid.value:
            write = tuple(
                int(port.value) for port in (dut.write__address, dut.write__enable, dut.write__data)
            )
            if self._held is not None:
                assert write == self._held, f"write changed while stalled: {self._held} -> {write}"
            if write_ready:
                self.writes.append(write)
                write = None
        else:
            assert self._held is None, "a stalled write was withdrawn"
        self._held = write
        self.flags |= int(dut.flags.value)
        self.stalls += int(dut.stall.value)
        if dut.done.value:
            self.done.append(self.cycle)
            assert self._held is None, "done before the last write was accepted"
        if dut.error__valid.value:
            self.errors.append(int(dut.error__code.value))
        await FallingEdge(dut.clk)
        self.cycle += 1

    async def issue(self, values):
        """Hand a command over; returns the cycle of its acceptance."""
        word = int.from_bytes(encode(Opcode.POST, **values), "little") >> HEADER_BITS
        self.dut.command__payload.value = word
        self.dut.command__valid.value = 1
        while not self.dut.command__ready.value:
            await self.step()
        accepted = self.cycle
        await self.step()
        self.dut.command__valid.value = 0
        return accepted

    async def finish(self, limit):
        """Wait for ``done``; returns its cycle."""
        count = len(self.done)
        for _ in range(limit):
            if len(self.done) > count:
                return self.done[-1]
            await self.step()
        raise AssertionError(f"no done within {limit} cycles")

    def forget(self):
        """A stop has withdrawn the write that was waiting."""
        self._held = None

    def take(self):
        """Writes and flags since the last call."""
        writes, flags = self.writes, self.flags
        self.writes, self.flags = [], 0
        return writes, flags


async def start(config, core, rng, **options):
    dut = cocotb.top
    memory = np.frombuffer(rng.randbytes(2 * ENTRIES * core.columns * 4), dtype=np.uint32)
    memory = memory.reshape(2, ENTRIES, core.columns).copy()
    if config.format.is_float:
        # Magnitudes near 1, some anywhere, some special; what a column can produce.
        exponent = 127 + (memory >> 23) % 9 - 4
        near = (memory & 0x807FFFFF) | exponent << 23
        anywhere = (memory & 0x7F800000 != 0) & (memory & 0x7F800000 != 0x7F800000)
        pick = np.frombuffer(rng.randbytes(memory.size), dtype=np.uint8).reshape(memory.shape)
        special = np.array(SPECIAL, dtype=np.uint32)[pick % len(SPECIAL)]
        memory = np.where((pick < 16) & anywhere, memory, near)
        memory = np.where(pick >= 240, special, memory).astype(np.uint32)
    for port in ("command__valid", "stop", "accumulator__ready", "write__ready"):
        getattr(dut, port).value = 0
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.rst.value = 1
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    for output in ("accumulator__valid", "write__valid", "done", "busy", "error__valid", "flags"):
        assert getattr(dut, output).value == 0, f"{output} is set after reset"
    return Bench(dut=dut, rng=rng, memory=memory, **options)


def random_command(rng, config, core, *, limit=300):
    """A legal command of at most ``limit`` reads, and the entries it reads (outputs, window)."""
    groups = core.groups_per_vector
    while True:
        counts = {name: rng.choice((1, 1, 2, 3)) for name in POST_LOOPS}
        counts["group"] = rng.randint(1, groups + 1)
        if rng.random() < 0.3:
            counts["wo"] = rng.randint(1, 12)
        strides = {name: rng.randint(-7, 7) for name in POST_LOOPS if name != "group"}
        if rng.random() < 0.3:
            strides["wo"], strides["pw"] = 1, 1  # windows that overlap
        if np.prod(list(counts.values())) > limit:
            continue
        entries = np.zeros((1, 1), dtype=int)
        for loop in ("n", "ho", "wo"):
            steps = np.arange(counts[loop]) * strides[loop]
            entries = (entries[:, None] + steps[None, :, None]).reshape(-1, 1)
        for loop in ("ph", "pw"):
            steps = np.arange(counts[loop]) * strides[loop]
            entries = (entries[:, :, None] + steps[None, None, :]).reshape(len(entries), -1)
        room = ENTRIES - 1 - (entries.max() - entries.min())
        if room >= 0:
            break
    origin = rng.randint(0, room) - int(entries.min())
    is_float = config.format.is_float
    scale = (
        int(np.float32(rng.choice((1.0, 0.25, 1 / 9, -3.0, 1e-30, 1e38, 0.0))).view(np.uint32))
        if is_float
        else rng.getrandbits(16) | rng.randint(8, gp.MAX_SHIFT) << 16
    )
    wide = rng.random() < 0.3
    per_output = counts["group"] * (core.chunks_per_wide if wide else 1)
    values = {
        "accumulator_bank": rng.randrange(2),
        "pool": rng.choice(list(Pool)),
        "relu": rng.randrange(2),
        "wide": int(wide),
        "accumulator_address": origin & 0xFFFF,
        **{f"{loop}_count": count for loop, count in counts.items()},
        **{f"{loop}_stride": stride for loop, stride in strides.items()},
        "channels": rng.choice((core.columns, rng.randint(0, core.columns), core.columns + 3)),
        "out_address": rng.randrange(1 << 20),
        "out_group": rng.randrange(core.groups_per_word),
        **{
            f"out_{loop}_stride": -(-per_output // core.groups_per_word) * rng.randint(-9, 9)
            for loop in POST_OUTPUT_LOOPS
        },
        "scale": scale,
    }
    return values, entries + origin


def expected(config, core, memory, values, entries):
    """The writes of a command in order, (address, enable, group), and its flags."""
    fmt = GOLDEN_FORMATS[config.operand_format]
    lanes = core.post_lanes
    used = min(values["group_count"] * lanes, values["channels"], core.columns)
    results, flags = gp.post(
        fmt,
        memory[values["accumulator_bank"]][entries][:, :, :used],
        relu=bool(values["relu"]),
        pool="sum" if values["pool"] == Pool.SUM else "max",
        scale=values["scale"],
        wide=bool(values["wide"]),
    )
    width = 32 if values["wide"] else fmt.width
    padded = np.zeros((len(entries), values["group_count"] * lanes), dtype=np.uint32)
    padded[:, :used] = results
    writes = []
    places = np.indices([values[f"{loop}_count"] for loop in ("n", "ho", "wo")]).reshape(3, -1)
    strides = [values[f"out_{loop}_stride"] for loop in ("n", "ho", "wo")]
    for place, row in zip(places.T, padded, strict=True):
        stream = sum(int(v) << width * i for i, v in enumerate(row))
        for group in range(len(row) * width // core.group_width):
            position = values["out_group"] + group
            address = values["out_address"] + int(place @ strides)
            address = (address + position // core.groups_per_word) % (1 << BUFFER_ADDRESS_WIDTH)
            bits = (stream >> group * core.group_width) & ((1 << core.group_width) - 1)
            writes.append((address, 1 << position % core.groups_per_word, bits))
    return writes, int(np.bitwise_or.reduce(flags, axis=None, initial=0))


def check(core, values, actual, wanted):
    writes, flags = actual
    wanted_writes, wanted_flags = wanted
    for number, (got, want) in enumerate(zip(writes, wanted_writes, strict=False)):
        address, enable, data = got
        slot = enable.bit_length() - 1
        group = (data >> max(slot, 0) * core.group_width) & ((1 << core.group_width) - 1)
        assert (address, enable, group) == want, (
            f"write {number} of {len(wanted_writes)}: address {address:#x} enable {enable:#b} "
            f"data {group:#x}, expected {want[0]:#x} {want[1]:#b} {want[2]:#x}; command {values}"
        )
    assert len(writes) == len(wanted_writes), (
        f"{len(writes)} writes, expected {len(wanted_writes)}; command {values}"
    )
    assert flags == wanted_flags, f"flags {flags:#06b}, expected {wanted_flags:#06b}; {values}"
