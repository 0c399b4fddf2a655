"""Reads that fail behind HALT and BATCH: what is fetched ahead and never executed is no error.

Covers: hw/control/fetch.py.
"""

from dataclasses import dataclass, field

import pytest
from amaranth.sim import Simulator

from hw.bus.signatures import RESP_DECERR, RESP_EXOKAY, RESP_OKAY, RESP_SLVERR
from hw.config import make_config
from hw.control.command_queue import CHUNK_WIDTH, command_chunks
from hw.control.fetch import AHEAD
from hw.isa.encoding import COMMAND_BYTES, Opcode, decode, encode
from hw.isa.error_codes import ErrorCode
from verif.blocks.control.sequencer_bench import Control, values_of

CONFIG = make_config(variant="baseline", preset="tiny")
BASE, PROGRAM = 0x7000, 0x340
HALT = encode(Opcode.HALT)
CODES = {
    RESP_EXOKAY: ErrorCode.READ_SLVERR,
    RESP_SLVERR: ErrorCode.READ_SLVERR,
    RESP_DECERR: ErrorCode.READ_DECERR,
}


def load(number):
    """A command that can be told from others."""
    return encode(Opcode.LOAD, **values_of(Opcode.LOAD) | {"dram_address": number})


@dataclass
class Machine:
    """A sequencer, a fetch and a memory that answers ``response`` where it has no command.

    ``beat``: in which beat of a burst it says so. ``taken`` are the LOADs that were dispatched.
    """

    response: int
    latency: int = 1
    beat: int = 0
    stream: list = field(default_factory=list)

    def simulate(self, process):
        self.dut = Control(CONFIG)
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)

        async def host(ctx):
            self.ctx = ctx
            ctx.set(self.dut.fetch.memory_base, BASE)
            ctx.set(self.dut.fetch.memory_size, 1 << 20)
            ctx.set(self.dut.empty, (1 << len(self.dut.queues)) - 1)
            ctx.set(self.dut.push0.ready, 1)
            await process(self)

        simulator.add_testbench(self._memory, background=True)
        simulator.add_testbench(host)
        simulator.run()

    async def _memory(self, ctx):
        read, width = self.dut.fetch.read, CONFIG.beat_bytes
        due, cycle, beats = [], 0, COMMAND_BYTES // CONFIG.beat_bytes
        ctx.set(read.request.ready, 1)
        while True:
            here = bool(due) and due[0][0] <= cycle
            ctx.set(read.data.valid, here)
            if here:
                _, address, beat = due.pop(0)
                place = (address - BASE - PROGRAM) // COMMAND_BYTES
                command = self.stream[place] if place < len(self.stream) else None
                bad = command is None and beat == self.beat
                bits = int.from_bytes((command or bytes(64))[beat * width :][:width], "little")
                resp = self.response if bad else RESP_OKAY
                ctx.set(read.data.payload, {"data": bits, "resp": resp, "last": beat == beats - 1})
            if ctx.get(read.request.valid):
                address = ctx.get(read.request.payload.address)
                due += [(cycle + self.latency, address, beat) for beat in range(beats)]
            await ctx.tick()
            cycle += 1

    async def run(self, stream, *, batches=0):
        """A run of a program with room for AHEAD commands more; its errors."""
        ctx, dut, size = self.ctx, self.dut, COMMAND_BYTES * (len(stream) + AHEAD)
        self.stream, self.taken, chunks, errors = stream, [], [], []
        ctx.set(dut.fetch.program_address, PROGRAM)
        ctx.set(dut.fetch.program_size, size)
        ctx.set(dut.batches.batches, batches)
        ctx.set(dut.batches.batches_ready, batches)
        ctx.set(dut.start, 1)
        for _ in range(2000):
            if ctx.get(dut.push0.valid):
                chunks.append(ctx.get(dut.push0.payload))
            if len(chunks) == command_chunks(Opcode.LOAD):
                bits = sum(chunk << (CHUNK_WIDTH * n) for n, chunk in enumerate(chunks))
                _, values = decode(bits.to_bytes(COMMAND_BYTES, "little"))
                self.taken.append(values["dram_address"])
                chunks = []
            if ctx.get(dut.error.valid):
                errors.append((ctx.get(dut.error.code), ctx.get(dut.error.address)))
            over = ctx.get(dut.finish)
            await ctx.tick()
            ctx.set(dut.start, 0)
            if over:
                return errors
        raise AssertionError("the run does not end")


#: Of the memory: from less than a command takes to more than all that is fetched ahead.
LATENCIES = (1, 4, 9, 13, 40)


@pytest.mark.parametrize("response", CODES)
def test_behind_halt(response):
    """Nothing behind HALT is wanted; HALT itself, or a command before it, is."""

    async def process(machine):
        for machine.latency, count in zip(LATENCIES, (0, 1, 3, 5, 2), strict=True):
            for machine.beat in (0, 7):
                what = f"latency {machine.latency}, {count} commands, beat {machine.beat}"
                loads = [load(n) for n in range(count)]
                assert await machine.run([*loads, HALT]) == [], what
                assert machine.taken == list(range(count)), what
                # All in front of the command that cannot be read is executed, nothing behind it.
                rest = [None, load(99), HALT] if machine.beat else [None, None, HALT]
                errors = await machine.run([*loads, *rest])
                assert errors == [(CODES[response], BASE + PROGRAM + COMMAND_BYTES * count)], what
                assert machine.taken == list(range(count)), what

    Machine(response).simulate(process)


@pytest.mark.parametrize("response", CODES)
def test_behind_batch(response):
    """Nothing behind BATCH is wanted but what it names."""

    async def process(machine):
        for machine.latency, count in zip(LATENCIES, (0, 1, 3, 5, 2), strict=True):
            what = f"latency {machine.latency}, {count} commands"
            gap = [None] * AHEAD
            target = PROGRAM + COMMAND_BYTES * (1 + len(gap))
            batch = dict.fromkeys(("bp_even", "bp_odd", "gp_even", "gp_odd"), target)
            loads = [load(n) for n in range(count)]
            first = encode(Opcode.BATCH, **batch, first=1)
            stream = [first, *gap, *loads, encode(Opcode.BATCH, **batch, first=0)]
            assert await machine.run(stream, batches=2) == [], what
            assert machine.taken == list(range(count)) * 2, what
            # A target that cannot be read is an error in the batch that goes there.
            stream[1 + len(gap)] = None
            assert await machine.run(stream, batches=2) == [(CODES[response], BASE + target)], what
            assert machine.taken == [], what

    Machine(response).simulate(process)
