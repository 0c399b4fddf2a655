"""A sequencer that executes loops: its fetch reads from a memory with latency, one queue takes what
it dispatches."""

import random
from dataclasses import dataclass, field

from amaranth.sim import Simulator

from hw.bus.signatures import RESP_OKAY
from hw.config import AdaGPConfig
from hw.control.command_queue import CHUNK_WIDTH, command_chunks
from hw.isa.encoding import COMMAND_BYTES, Opcode, decode, encode
from hw.isa.execution import dispatched
from verif.blocks.control.sequencer_bench import Control

__all__ = ["BASE", "PROGRAM", "LoopBench", "expected_addresses", "load", "random_loops", "repeat"]

#: Where the memory window and the program in it begin.
BASE, PROGRAM = 0x7000, 0x340


def load(address=0, **fields):
    """A LOAD that can be told by its address."""
    return encode(
        Opcode.LOAD,
        **{"buffer_address": 0, "run_bytes": 8, "row_bytes": 8, "dram_address": address} | fields,
    )


def repeat(level, count, first, program=PROGRAM):
    """A REPEAT to the command number ``first`` of the program."""
    return encode(
        Opcode.REPEAT, level=level, count=count, first=program + COMMAND_BYTES * first
    )  # fmt: skip


def expected_addresses(stream, limit=10**6):
    """Addresses of the LOADs of a stream in the order in which they are dispatched."""
    commands, found = [decode(command) for command in stream], []
    for number, (place, counters) in enumerate(dispatched(commands, PROGRAM)):
        if number == limit:
            raise AssertionError(f"more than {limit} commands")
        opcode, fields = commands[place]
        if opcode is Opcode.LOAD:
            found.append(counters.address(fields))
    return found


def random_loops(rng, *, size, most):
    """A program of at most ``most`` executed commands with random loops of ``size`` commands or
    so, HALT at its end."""
    while True:
        stream = []
        for _ in range(rng.randint(1, 3)):
            stream += _body(rng, len(stream), list(rng.sample(range(4), 4)), size)
        stream += [load(rng.getrandbits(26) * 64) for _ in range(rng.randint(0, 3))]
        stream.append(encode(Opcode.HALT))
        try:
            expected_addresses(stream, most)
        except AssertionError:
            continue
        return stream


def _body(rng, first, levels, size):
    """A loop at command ``first`` that may hold others of ``levels``."""
    stream, own = [], levels.pop()
    for _ in range(rng.randint(1, 3)):
        for _ in range(rng.randint(0, size)):
            strides = {
                f"loop{level}_stride": rng.choice((8, -64, 1 << 30, rng.randrange(-1000, 1000)))
                for level in range(4)
                if rng.random() < 0.5
            }
            stream.append(load(rng.getrandbits(26) * 64, **strides))
        if levels and rng.random() < 0.5:
            stream += _body(rng, first + len(stream), levels[:], size)
    return [*stream, repeat(own, rng.choice((1, 2, 2, 3, 5)), first)]


@dataclass
class LoopBench:
    """A run on a memory.

    The program is ``program`` bytes behind BASE, where the memory window of ``memory_size`` bytes
    begins. ``latency``: cycles from a request to its first beat. ``accept``, ``beat``, ``take``:
    chances per cycle that a request is taken, a beat comes, the queue takes a chunk. ``answers``:
    command number -> response.

    Of a run, ``loads`` are (cycle, address) and ``values`` the fields of each LOAD dispatched,
    ``dispatched`` the cycles of all commands, ``requests`` the numbers of those requested.
    """

    config: AdaGPConfig
    seed: int = 0
    program: int = PROGRAM
    memory_size: int = 1 << 20
    latency: int = 1
    accept: float = 1.0
    beat: float = 1.0
    take: float = 1.0
    answers: dict = field(default_factory=dict)
    stream: list = field(default_factory=list)

    def simulate(self, process):
        self.dut = Control(self.config)
        self.rng = random.Random(self.seed)
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)

        async def host(ctx):
            self.ctx = ctx
            ctx.set(self.dut.fetch.memory_base, BASE)
            ctx.set(self.dut.fetch.memory_size, self.memory_size)
            ctx.set(self.dut.empty, (1 << len(self.dut.queues)) - 1)
            self.due, self.cycle = [], 0
            await process(self)

        simulator.add_testbench(host)
        simulator.run()

    def _memory(self):
        """One cycle of the memory."""
        ctx, read, width = self.ctx, self.dut.fetch.read, self.config.beat_bytes
        beats = COMMAND_BYTES // width
        accept = self.rng.random() < self.accept
        ctx.set(read.request.ready, accept)
        here = bool(self.due) and self.due[0][0] <= self.cycle and self.rng.random() < self.beat
        ctx.set(read.data.valid, here)
        if here:
            _, number, beat = self.due.pop(0)
            command = self.stream[number] if number < len(self.stream) else bytes(COMMAND_BYTES)
            bits = int.from_bytes(command[beat * width :][:width], "little")
            resp = self.answers.get(number, RESP_OKAY)
            ctx.set(read.data.payload, {"data": bits, "resp": resp, "last": beat == beats - 1})
        if accept and ctx.get(read.request.valid):
            place = ctx.get(read.request.payload.address) - BASE - self.program
            number = place // COMMAND_BYTES
            self.requests.append(number)
            self.due += [(self.cycle + self.latency, number, beat) for beat in range(beats)]

    async def start(self, stream, *, behind=4):
        """Begin a run of ``stream`` and room for ``behind`` commands more."""
        ctx, dut = self.ctx, self.dut
        self.stream, self.loads, self.requests, self.chunks, self.errors = stream, [], [], [], []
        self.dispatched, self.values = [], []
        ctx.set(dut.fetch.program_address, self.program)
        ctx.set(dut.fetch.program_size, COMMAND_BYTES * (len(stream) + behind))
        ctx.set(dut.start, 1)
        await self.step()
        ctx.set(dut.start, 0)

    async def step(self):
        """One cycle; whether the run ends in it."""
        ctx, dut = self.ctx, self.dut
        self._memory()
        take = self.rng.random() < self.take
        ctx.set(dut.push0.ready, take or bool(self.chunks))
        if ctx.get(dut.push0.valid) and (take or self.chunks):
            self.chunks.append(ctx.get(dut.push0.payload))
        if len(self.chunks) == command_chunks(Opcode.LOAD):
            bits = sum(chunk << (CHUNK_WIDTH * n) for n, chunk in enumerate(self.chunks))
            _, values = decode((bits % (1 << 512)).to_bytes(COMMAND_BYTES, "little"))
            self.loads.append((self.cycle, values["dram_address"]))
            self.values.append(values)
            self.chunks = []
        if ctx.get(dut.dispatched):
            self.dispatched.append(self.cycle)
        if ctx.get(dut.error.valid):
            self.errors.append((ctx.get(dut.error.code), ctx.get(dut.error.address)))
        over = ctx.get(dut.finish)
        await ctx.tick()
        self.cycle += 1
        return over

    async def run(self, stream, *, limit=100_000, **options):
        """A whole run; its errors."""
        await self.start(stream, **options)
        for _ in range(limit):
            if await self.step():
                return self.errors
        raise AssertionError(f"the run does not end in {limit} cycles")
