"""A core alone, in Amaranth's simulator: a product from memory to memory, errors, flags, resets.

The tests of the whole accelerator have all of its engines.
"""

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from golden.arithmetic.dot_product import Flags
from golden.arithmetic.dot_product import encode as encode_number
from golden.arithmetic.formats import format_by_name
from hw.bus.signatures import RESP_OKAY, RESP_SLVERR
from hw.config import make_config
from hw.control.command_queue import CHUNK_WIDTH, command_chunks
from hw.control.core import Core, buffer_channels
from hw.isa.encoding import Opcode, decode
from hw.isa.error_codes import ErrorCode
from hw.isa.vector import Factor, Source, Watch
from hw.registers.map import Unit
from verif.programs.faulty_programs import dma, loss, matmul, post, vector, weights

#: Words of one group, of two, of three.
CHANNELS = {
    "one group": {"variant": "max", "rows": 3, "columns": 3, "predictor_rows": 2},
    "two groups": {"variant": "efficient", "rows": 4, "columns": 2, "post_lanes": 2},
    "three groups": {"variant": "baseline", "rows": 3, "columns": 3, "post_lanes": 1},
}

_FIELDS = {"rows": 2, "columns": 2, "axi_address_width": 64, "axi_data_width": 64}
#: Without VECTOR and LOSS, which would take most of the time; and with them.
CONFIG = make_config(variant="baseline", preset="tiny", training=False, **_FIELDS)
TRAINING = make_config(variant="baseline", preset="tiny", **_FIELDS)
#: The memory window: 4 GiB in the upper half of all addresses.
BASE, SIZE = 1 << 63, 1 << 32
#: Offsets in its upper half, and words of the buffer: operands, of which the first two are weights,
#: and results.
DATA, RESULTS = 0xC0000000, 0xC0001000
WORDS, OUT = 12, 64
VECTORS = WORDS - 2
#: Semaphores: data and weights are there; sums, results.
LOADED, BROUGHT, SUMMED, POSTED = 1, 2, 4, 8
LARGE = 2.0**100


def operands(values):
    """bf16 codes of (words, rows) numbers, as bytes."""
    return encode_number(format_by_name("bf16"), np.array(values, float)).astype("<u2").tobytes()


def product(**fields):
    """Commands of a product: ``fields`` by opcode are replaced."""

    def change(name, **values):
        return values | fields.get(name, {})

    return [
        dma(Opcode.LOAD, CONFIG, **change("load", words=WORDS, dram_address=DATA,
                                          signal=LOADED | BROUGHT)),
        weights(CONFIG, **change("weights", row_stride=1, row_limit=2, transpose=0, wait=LOADED)),
        matmul(CONFIG, **change("matmul", x_address=2, vectors=VECTORS, wo_stride=1, wo_step=1,
                                w_limit=VECTORS, channels=2, wait=BROUGHT, signal=SUMMED)),
        post(CONFIG, **change("post", outputs=VECTORS, wo_stride=1, out_wo_stride=1, channels=2,
                              out_address=OUT, wait=SUMMED, signal=POSTED)),
        dma(Opcode.STORE, CONFIG, **change("store", words=VECTORS, buffer_address=OUT,
                                           dram_address=RESULTS, wait=POSTED)),
    ]  # fmt: skip


class Bench:
    """A core, its commands, semaphores and memory.

    ``memory``: address -> byte; ``response`` of all reads; ``log``: for each cycle what the outputs
    are: names of :data:`OUTPUTS` and "error", (code, unit, address) or None.
    """

    OUTPUTS = ("empty", "blocked", "working", "bus_busy", "flags", "progress")

    def __init__(self, config=CONFIG):
        self.config = config
        self.dut = Core(config, config.cores[0])
        self.clear = Signal()

    def simulate(self, process):
        async def testbench(ctx):
            self.ctx = ctx
            ctx.set(self.dut.memory_base, BASE)
            ctx.set(self.dut.memory_size, SIZE)
            self.forget()
            await process(self)

        simulator = Simulator(ResetInserter(self.clear)(self.dut))
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()

    def forget(self):
        self.memory, self.response = {}, RESP_OKAY
        self.chunks = {number: [] for number in range(len(self.dut.opcodes))}
        self.tokens, self.owed, self.writes, self.answers = 0, [], [], 0
        self.log = []

    def put(self, address, data):
        self.memory |= {address + place: byte for place, byte in enumerate(data)}

    def push(self, *commands):
        for command in commands:
            opcode, _ = decode(command)
            word = int.from_bytes(command, "little")
            self.chunks[self.dut.opcodes.index(opcode)] += [
                word >> CHUNK_WIDTH * n & (1 << CHUNK_WIDTH) - 1
                for n in range(command_chunks(opcode))
            ]

    async def reset(self):
        """For one cycle."""
        self.ctx.set(self.clear, 1)
        await self.step()
        self.ctx.set(self.clear, 0)
        self.forget()

    async def step(self):
        ctx, dut = self.ctx, self.dut
        given = 0
        for number, chunks in self.chunks.items():
            push = getattr(dut, f"push{number}")
            ctx.set(push.valid, bool(chunks))
            ctx.set(push.payload, chunks[0] if chunks else 0)
            if chunks and ctx.get(push.ready):
                chunks.pop(0)
            take, give = dut.take[number], dut.give[number]
            mask = ctx.get(take.payload)
            able = ctx.get(take.valid) and mask & ~self.tokens == 0
            ctx.set(take.ready, able)
            ctx.set(give.ready, 1)
            self.tokens ^= mask if able else 0
            given |= ctx.get(give.payload) if ctx.get(give.valid) else 0
        self._read()
        self._write()
        event = {name: ctx.get(getattr(dut, name)) for name in self.OUTPUTS}
        error = dut.error
        event["error"] = None
        if ctx.get(error.valid):
            event["error"] = tuple(ctx.get(x) for x in (error.code, error.unit, error.address))
        self.log.append(event)
        self.tokens |= given
        await ctx.tick()

    def _bytes(self, address, count):
        raw = bytes(self.memory.get(address + place, 0) for place in range(count))
        return int.from_bytes(raw, "little")

    def _read(self):
        ctx, read, beat = self.ctx, self.dut.read, self.config.beat_bytes
        ctx.set(read.request.ready, 1)
        ctx.set(read.data.valid, bool(self.owed))
        if self.owed:
            address, last = self.owed[0]
            data = {"data": self._bytes(address, beat), "resp": self.response, "last": last}
            ctx.set(read.data.payload, data)
            if ctx.get(read.data.ready):
                self.owed.pop(0)
        if ctx.get(read.request.valid):
            burst = ctx.get(read.request.payload)
            self.owed += [
                (burst.address + n * beat, n == burst.length) for n in range(burst.length + 1)
            ]

    def _write(self):
        ctx, write, beat = self.ctx, self.dut.write, self.config.beat_bytes
        ctx.set(write.request.ready, 1)
        ctx.set(write.data.ready, 1)
        ctx.set(write.response.valid, self.answers > 0)
        ctx.set(write.response.payload, RESP_OKAY)
        self.answers -= self.answers > 0
        if ctx.get(write.request.valid):
            burst = ctx.get(write.request.payload)
            self.writes += [burst.address + n * beat for n in range(burst.length + 1)]
        if ctx.get(write.data.valid):
            payload, address = ctx.get(write.data.payload), self.writes.pop(0)
            for place in range(beat):
                if payload.strb >> place & 1:
                    self.memory[address + place] = payload.data >> 8 * place & 0xFF
            self.answers += payload.last

    def bit(self, name, opcode):
        """Of an output with a bit per queue, by cycle."""
        number = self.dut.opcodes.index(opcode)
        return [event[name] >> number & 1 for event in self.log]

    def seen(self, name):
        return [event[name] for event in self.log]

    async def run(self, *commands, limit=400):
        """Commands until all queues are empty, or to the end of an error."""
        self.push(*commands)
        everything = (1 << len(self.dut.opcodes)) - 1
        for _ in range(limit):
            await self.step()
            if self.log[-1]["empty"] == everything and not any(self.chunks.values()):
                break
            if len(self.log) > 1 and self.log[-2]["error"]:
                break
        else:
            raise AssertionError(f"not over in {limit} cycles: {self.log[-1]}")


def numbers(value=1.0):
    """Weights that leave vectors as they are, times ``value``, and vectors."""
    vectors = [[value * (n + 1), -value * (n + 2)] for n in range(VECTORS)]
    return [[value, 0.0], [0.0, value], *vectors]


def test_a_product():
    """From memory to memory, all of whose addresses are large; who is at work in which order."""

    async def process(bench):
        bench.put(BASE + DATA, operands(numbers()))
        await bench.run(*product())
        size = VECTORS * CONFIG.cores[0].word_bytes
        wanted = int.from_bytes(operands(numbers()[2:]), "little")
        assert bench._bytes(BASE + RESULTS, size) == wanted
        assert not any(bench.seen("error")) and not any(bench.seen("flags"))
        assert bench.tokens == 0
        assert sum(bench.seen("progress")) == len(product())
        # LOAD reads, then STORE writes.
        busy = [value for value in bench.seen("bus_busy") if value]
        assert busy == sorted(busy) and set(busy) == {1, 2}
        for opcode in bench.dut.opcodes:
            assert sum(bench.bit("working", opcode)) > 3, opcode.name
        first = [bench.bit("working", opcode).index(1) for opcode in bench.dut.opcodes]
        assert first == sorted(first), dict(zip(bench.dut.opcodes, first, strict=True))
        blocked = bench.bit("blocked", Opcode.POST)
        assert 0 < sum(blocked) < len(blocked)
        # A reset in the cycle in which LOAD is done.
        cycle = bench.seen("progress").index(1)
        await bench.reset()
        bench.push(*product())
        for _ in range(cycle - 1):
            await bench.step()
        await bench.reset()
        await bench.step()
        assert not any(bench.seen("progress"))

    Bench().simulate(process)


def test_weights_that_nobody_takes():
    """Their queue is not empty, and blocked as soon as they do not move any more."""

    async def process(bench):
        everything = (1 << len(bench.dut.opcodes)) - 1
        await bench.step()
        assert bench.log[-1]["empty"] == everything
        bench.push(weights(CONFIG, row_stride=1, row_limit=2, transpose=0))
        for _ in range(60):
            await bench.step()
        held = bench.bit("empty", Opcode.WEIGHTS)
        arrival = held.index(0)
        assert held[arrival:] == [0] * len(held[arrival:]) and arrival < 4
        blocked = bench.bit("blocked", Opcode.WEIGHTS)[arrival:]
        # Not while words are read; but the loader is quiet in the cycle in which it begins.
        over = bench.seen("progress")[arrival:].index(1) - 1
        assert sum(blocked[:over]) <= 1 and all(blocked[over:]), (over, blocked)
        await bench.run(matmul(CONFIG))
        assert bench.log[-1]["empty"] == everything

    Bench().simulate(process)


#: Values, POST's scale, and flags: of the array, of POST, of neither.
RAISED = Flags.OVERFLOW | Flags.INEXACT
FLAGS = [(LARGE, 1.0, RAISED), (1.0, LARGE * 2.0**27, RAISED), (1.0, 1.0, 0)]


def test_flags():
    """Whoever raises them; nothing of them is left behind a reset of one cycle."""

    async def process(bench):
        for value, scale, flags in FLAGS:
            commands = product(post={"scale": int(np.float32(scale).view(np.uint32))})
            bench.put(BASE + DATA, operands(numbers(value)))
            await bench.run(*commands)
            seen = bench.seen("flags")
            assert np.bitwise_or.reduce(seen) == flags, (value, scale)
            await bench.reset()
            raised = [cycle for cycle, flags in enumerate(seen) if flags]
            for cycle in raised[:2]:
                bench.put(BASE + DATA, operands(numbers(value)))
                bench.push(*commands)
                for _ in range(cycle - 1):
                    await bench.step()
                await bench.reset()
                for _ in range(5):
                    await bench.step()
                assert not any(bench.seen("flags")), f"a reset before cycle {cycle}"
                await bench.reset()

    Bench().simulate(process)


def test_engines_for_training():
    """Flags of VECTOR and of LOSS, each alone, and what the guard has found; every bit of the seed
    counts."""
    config, words = TRAINING, 16
    squares = {"factor": Factor.U}
    commands = {
        "VECTOR": (vector(config, wait=1, **squares), RAISED),
        "LOSS": (loss(config, wait=1, loss=1), RAISED),
        "guard": (vector(config, wait=1, watch=Watch.FIRST, y_source=Source.NARROW, y_address=1),
                  1 << 4),
    }  # fmt: skip
    sampled = vector(
        config, steps=words, x_address=2, o_address=OUT, sample=1, y_address=1 << 23, wait=1,
        signal=2, z_i0_stride=1,
    )  # fmt: skip

    async def process(bench):
        load = dma(Opcode.LOAD, config, words=2 + words, dram_address=DATA, signal=1)
        store = dma(
            Opcode.STORE, config, words=words, buffer_address=OUT, dram_address=RESULTS, wait=2
        )
        bench.ctx.set(bench.dut.guard, 1)
        data = operands([[LARGE, 1.0], [float("inf"), 1.0], *[[1.0, 1.0]] * words])
        for name, (command, flags) in commands.items():
            bench.put(BASE + DATA, data)
            await bench.run(load, command, limit=900)
            assert np.bitwise_or.reduce(bench.seen("flags")) == flags, name
            await bench.reset()
        masks = []
        for seed in (0, 1 << 31, 0):
            bench.ctx.set(bench.dut.sample_seed, seed)
            bench.put(BASE + DATA, data)
            await bench.run(load, sampled, store)
            masks.append(bench._bytes(BASE + RESULTS, words * config.cores[0].word_bytes))
            await bench.reset()
        assert masks[0] == masks[2] != masks[1] and all(masks)

    Bench(config).simulate(process)


#: Fields that are wrong, the error and its address.
FAULTS = {
    "LOAD": ({"dram_address": DATA + 1}, ErrorCode.UNALIGNED_ADDRESS, BASE + DATA + 1),
    "STORE": ({"dram_address": SIZE - 4}, ErrorCode.MEMORY_WINDOW, BASE + SIZE - 4),
    "MATMUL": ({"accumulator_address": 1 << 15}, ErrorCode.ACCUMULATOR_ADDRESS, 1 << 15),
    "POST": ({"out_address": 0x7FFFFF}, ErrorCode.BUFFER_ADDRESS, 0x7FFFFF),
    "WEIGHTS": ({"address": 0x7FFFF0}, ErrorCode.BUFFER_ADDRESS, 0x7FFFF0),
}


def test_errors():
    """With all bits of their address, those of the bus for one cycle."""

    async def process(bench):
        for unit, (fields, code, address) in FAULTS.items():
            bench.put(BASE + DATA, operands(numbers()))
            await bench.run(*product(**{unit.lower(): fields}))
            errors = [error for error in bench.seen("error") if error]
            assert errors[0] == (code, Unit[f"CORE0_{unit}"], address), unit
            assert len(errors) == 1 or unit not in ("LOAD", "STORE"), unit
            await bench.reset()
            await bench.step()
            assert not bench.log[-1]["error"], unit
        bench.response = RESP_SLVERR
        await bench.run(*product())
        assert [error for error in bench.seen("error") if error] == [
            (ErrorCode.READ_SLVERR, Unit.CORE0_LOAD, BASE + DATA)
        ]

    Bench().simulate(process)


@pytest.mark.parametrize("name", CHANNELS)
def test_channels(name):
    """Who asks in every cycle has a channel of its own: weights, vectors, STORE, and the streams of
    VECTOR where it takes a word a cycle. None is left out, and LOSS has none of its own."""
    for core in make_config(preset="tiny", **CHANNELS[name]).cores:
        readers, writers = buffer_channels(core)
        streams = [f"vector_{stream}" for stream in "xyz"] if core.has_vector else []
        loss = ["loss"] if core.has_loss else []
        assert list(readers) == ["weights", "x", *streams, "store", *loss]
        assert list(writers) == ["post", *(["vector"] if core.has_vector else []), "load", *loss]
        vector = [readers.pop(f"vector_{stream}") for stream in "xyz"]
        channel = readers.pop("loss", None)
        assert readers == {"weights": 0, "x": 1, "store": 0}
        assert vector == ([2, 3, 4] if core.groups_per_word == 1 else [2, 2, 2])
        assert channel == (2 if core.has_loss else None)
        assert writers == dict.fromkeys(writers, 0)
