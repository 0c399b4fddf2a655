"""Driver, stimulus and expected writes for benches of ``PostEngine``."""

import math
from dataclasses import dataclass, field

import numpy as np

from emulator.machine import Machine
from golden.commands import post as gp
from hw.bus.signatures import ACCUMULATOR_READ_LATENCY
from hw.config import BUFFER_ADDRESS_WIDTH, CoreConfig
from hw.isa.encoding import (
    HEADER_LAYOUT,
    POST_LOOPS,
    POST_OUTPUT_LOOPS,
    Opcode,
    Pool,
    encode,
    with_defaults,
)

from .engine_bench import EngineBench, reset

__all__ = ["Bench", "check", "expected", "random_command", "start", "write_cycles"]

SPECIAL = (0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x00800000, 0x80800000)


@dataclass(kw_only=True)
class Bench(EngineBench):
    """Both accumulator banks of the engine, with stalls; records every write.

    ``machine`` has the same sums.
    """

    machine: Machine
    core: CoreConfig
    memory: np.ndarray
    reads: int = 0
    _data: list = field(default_factory=lambda: [None] * ACCUMULATOR_READ_LATENCY)

    def pack(self, fields):
        command = encode(Opcode.POST, **fields)
        return int.from_bytes(command, "little") >> HEADER_LAYOUT.size

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
        self.take_write(write_ready)
        await self.end_cycle()


async def start(config, core, rng, **options):
    shape = 2, core.accumulator_depth, core.columns
    memory = np.frombuffer(rng.randbytes(4 * math.prod(shape)), dtype=np.uint32)
    memory = memory.reshape(shape).copy()
    if config.format.is_float:
        # Magnitudes near 1, some anywhere, some special; what a column can produce.
        exponent = 127 + (memory >> 23) % 9 - 4
        near = (memory & 0x807FFFFF) | exponent << 23
        anywhere = (memory & 0x7F800000 != 0) & (memory & 0x7F800000 != 0x7F800000)
        pick = np.frombuffer(rng.randbytes(memory.size), dtype=np.uint8).reshape(memory.shape)
        special = np.array(SPECIAL, dtype=np.uint32)[pick % len(SPECIAL)]
        memory = np.where((pick < 16) & anywhere, memory, near)
        memory = np.where(pick >= 240, special, memory).astype(np.uint32)
    dut = await reset(
        ("command__valid", "stop", "accumulator__ready", "write__ready"),
        ("accumulator__valid", "write__valid", "done", "busy", "error__valid", "flags"),
    )
    machine = Machine(config, bytearray())
    for bank in range(2):
        sums = machine.accumulator(core, {"accumulator_bank": bank})
        sums.write(slice(None), memory[bank].astype("<u4").view(np.uint8))
    return Bench(dut=dut, rng=rng, machine=machine, core=core, memory=memory, **options)


def random_command(rng, config, core, *, limit=300, wide=None):
    """A legal command of at most ``limit`` reads; ``wide`` as it comes, unless it is given."""
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
        # Entries before and behind the first that loops reach.
        reach = [stride * (counts[name] - 1) for name, stride in strides.items()]
        before = -sum(min(0, step) for step in reach)
        room = core.accumulator_depth - 1 - sum(map(abs, reach))
        if room >= 0:
            break
    origin = rng.randint(0, room) + before
    is_float = config.format.is_float
    scale = (
        int(np.float32(rng.choice((1.0, 0.25, 1 / 9, -3.0, 1e-30, 1e38, 0.0))).view(np.uint32))
        if is_float
        else rng.getrandbits(16) | rng.randint(8, gp.MAX_SHIFT) << 16
    )
    wide = rng.random() < 0.3 if wide is None else wide
    per_output = counts["group"] * (core.chunks_per_wide if wide else 1)
    values = {
        "accumulator_bank": rng.randrange(2),
        "pool": rng.choice(list(Pool)),
        "relu": rng.randrange(2),
        "wide": int(wide),
        "accumulator_address": origin,
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
    return values


def expected(bench, values):
    """What a command writes, group by group in order, (address, enable, group), and its flags."""
    machine, core = bench.machine, bench.core
    fields = with_defaults(Opcode.POST, values)
    addresses, outputs, flags = machine.commands[0, Opcode.POST].outputs(fields)
    size = core.group_width // 8
    writes = []
    for first, output in zip(addresses, outputs, strict=True):
        for group, data in enumerate(output.reshape(-1, size)):
            word, slot = divmod(values["out_group"] + group, core.groups_per_word)
            address = (int(first) + word) % (1 << BUFFER_ADDRESS_WIDTH)
            writes.append((address, 1 << slot, int.from_bytes(data.tobytes(), "little")))
    return writes, flags


def write_cycles(core, values):
    """(cycles that the writer needs, words that it writes) for a command."""
    chunks = core.chunks_per_wide if values["wide"] else 1
    cycles = words = 0
    slot, groups = values["out_group"], values["group_count"]
    while groups:
        left = min(groups, core.post_groups)
        groups, left = groups - left, left * chunks
        while left:
            count = min(left, core.post_groups, core.groups_per_word - slot)
            left, slot, cycles = left - count, slot + count, cycles + 1
            if slot == core.groups_per_word or not (left or groups):
                slot, words = slot % core.groups_per_word, words + 1
    outputs = int(np.prod([values[f"{loop}_count"] for loop in POST_OUTPUT_LOOPS]))
    return cycles * outputs, words * outputs


def check(core, values, actual, wanted):
    """Compare writes with those :func:`expected`; ``values`` are a list of all their commands."""
    writes, flags = actual
    wanted_writes, wanted_flags = wanted
    groups = [
        (address, 1 << slot, (data >> slot * core.group_width) & ((1 << core.group_width) - 1))
        for address, enable, data in writes
        for slot in range(core.groups_per_word)
        if enable >> slot & 1
    ]
    for number, (got, want) in enumerate(zip(groups, wanted_writes, strict=False)):
        assert got == want, (
            f"group {number} of {len(wanted_writes)}: address {got[0]:#x} enable {got[1]:#b} "
            f"data {got[2]:#x}, expected {want[0]:#x} {want[1]:#b} {want[2]:#x}; commands {values}"
        )
    assert len(groups) == len(wanted_writes), (
        f"{len(groups)} groups written, expected {len(wanted_writes)}; commands {values}"
    )
    words = sum(write_cycles(core, command)[1] for command in values)
    assert len(writes) == words, f"{len(writes)} writes, expected {words}; commands {values}"
    assert flags == wanted_flags, f"flags {flags:#06b}, expected {wanted_flags:#06b}; {values}"
