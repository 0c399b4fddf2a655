"""Command queues: alone against a model, and in pairs with their semaphores."""

import functools
import itertools
import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect
from amaranth.sim import Simulator

from hw.config import make_config
from hw.control.command_queue import (
    CHUNK_WIDTH,
    IN_FLIGHT,
    CommandQueue,
    Semaphores,
    command_chunks,
)
from hw.isa.encoding import HEADER_LAYOUT, QUEUE_OPCODES, Opcode, encode, engine_layout
from verif.blocks.control.sequencer_bench import values_of

CONFIG = make_config(variant="baseline", preset="tiny")
OPCODE = Opcode.STORE
MASKS = (1 << CONFIG.semaphore_count) - 1


def simulate(dut, *testbenches):
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for testbench in testbenches:
        simulator.add_testbench(testbench)
    simulator.run()


CHUNKS = command_chunks(OPCODE)


@functools.cache
def command_of(number):
    """Fields of a command that can be told by its number: half of their bits are set."""
    values = values_of(OPCODE, random.Random(number))
    return values | {"dram_address": number, "row_bytes": ~number & 0xFFFFFFFF}


def chunks_of(wait, signal, number):
    """The chunks of that command."""
    command = encode(OPCODE, wait=wait, signal=signal, **command_of(number))
    word = int.from_bytes(command, "little")
    return [word >> (CHUNK_WIDTH * n) & ((1 << CHUNK_WIDTH) - 1) for n in range(CHUNKS)]


class QueuePeer:
    """Plays everything around a queue, at random, and checks every cycle.

    Chances per cycle: ``push`` a command is offered, ``take`` the semaphores allow, ``start`` the
    engine accepts, ``end`` it finishes one, ``give`` a signal is accepted, ``starve`` the engine
    waits for another one.
    """

    def __init__(self, dut, rng, **chances):
        self.dut = dut
        self.rng = rng
        self.chances = {"starve": 0.1, **chances}
        self.items = []
        self.sent = 0  # chunks of the command that is being pushed
        # Commands that were ...
        self.pushed = self.granted = self.started = self.ended = self.gave = 0

    def chance(self, name):
        return self.rng.random() < self.chances[name]

    async def run(self, ctx, count):
        while self.gave < count:
            await self.cycle(ctx, count)

    async def cycle(self, ctx, count):
        dut = self.dut
        if len(self.items) == self.pushed < count and self.chance("push"):
            self.items.append((self.rng.getrandbits(16) & MASKS, self.rng.getrandbits(16) & MASKS))
        offered = len(self.items) > self.pushed
        ctx.set(dut.push.valid, offered)
        if offered:
            chunks = chunks_of(*self.items[-1], len(self.items) - 1)
            ctx.set(dut.push.payload, chunks[self.sent])
        ctx.set(dut.take.ready, self.chance("take"))
        ctx.set(dut.command.ready, self.chance("start"))
        ctx.set(dut.give.ready, self.chance("give"))
        ends = self.ended < self.started and self.chance("end")
        ctx.set(dut.done, ends)

        takes, starts, gives = (ctx.get(port.valid) for port in (dut.take, dut.command, dut.give))
        nothing = self.gave == self.pushed and not self.sent
        assert ctx.get(dut.empty) == nothing
        starved = self.chance("starve")
        ctx.set(dut.starved, starved)
        stays = (self.pushed == self.granted and not self.sent) or (
            takes and not ctx.get(dut.take.ready)
        )
        idle = self.gave == self.started or starved
        granted = self.granted > self.started
        assert ctx.get(dut.working) == (not idle)
        assert ctx.get(dut.blocked) == (idle and (starved if granted else stays))
        if takes:
            assert self.granted < self.pushed and self.granted == self.started
            assert ctx.get(dut.take.payload) == self.items[self.granted][0]
        if starts:
            assert self.started < self.granted, f"command {self.started} did not wait"
            command = ctx.get(dut.command.payload)
            actual = {name: command[name] for name, _ in engine_layout(OPCODE)}
            expected = {name: command_of(self.started)[name] for name in actual}
            assert actual == expected, f"command {self.started}"
        if gives:
            assert self.gave < self.ended, f"command {self.gave} is not done"
            assert ctx.get(dut.give.payload) == self.items[self.gave][1]

        if offered and ctx.get(dut.push.ready):
            self.sent = (self.sent + 1) % CHUNKS
            self.pushed += not self.sent
        else:
            assert not (offered and self.sent), "ready for a part of a command only"
        self.granted += takes and ctx.get(dut.take.ready)
        self.started += starts and ctx.get(dut.command.ready)
        self.gave += gives and ctx.get(dut.give.ready)
        self.ended += ends
        assert self.started - self.gave <= IN_FLIGHT
        await ctx.tick()


FAST = {"push": 1.0, "take": 1.0, "start": 1.0, "end": 1.0, "give": 1.0}


@pytest.mark.parametrize("slow", [None, *FAST])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_queue_under_random_traffic(depth, slow, seed):
    config = make_config(variant="baseline", preset="tiny", command_queue_depth=depth)
    dut = CommandQueue(config, OPCODE)
    chances = dict.fromkeys(FAST, 0.7 if slow else 0.4)
    if slow:
        chances[slow] = 0.1
    peer = QueuePeer(dut, random.Random(f"{seed} {depth} {slow}"), **chances)

    async def testbench(ctx):
        await peer.run(ctx, 40)

    simulate(dut, testbench)
    assert peer.gave == 40


def test_queue_latency_and_rate(seed):
    dut = CommandQueue(CONFIG, OPCODE)
    peer = QueuePeer(dut, random.Random(seed), **FAST)
    starts = []

    async def testbench(ctx):
        for cycle in itertools.count():
            before = peer.started
            await peer.cycle(ctx, 12)
            if peer.started > before:
                starts.append(cycle)
            if peer.gave == 12:
                break

    simulate(dut, testbench)
    first = CHUNKS - 1 + dut.latency
    assert starts == [first + dut.interval * n for n in range(12)]


def test_queue_back_pressure(seed):
    """A queue whose head waits takes ``depth`` commands more; an engine that never finishes gets
    IN_FLIGHT commands."""
    for depth in (1, 4, 7):
        config = make_config(variant="baseline", preset="tiny", command_queue_depth=depth)
        for stopped, kept, running in (("take", depth + 1, 0), ("end", depth + 1, IN_FLIGHT)):
            dut = CommandQueue(config, OPCODE)
            peer = QueuePeer(dut, random.Random(seed), **{**FAST, stopped: 0.0})

            async def testbench(ctx, peer=peer):
                for _ in range(60 + 20 * CHUNKS):
                    await peer.cycle(ctx, 50)

            simulate(dut, testbench)
            assert peer.pushed == kept + running, (depth, stopped)
            assert peer.started == running, (depth, stopped)


@pytest.mark.parametrize("slow", ["take", "start", "end", "give"])
@pytest.mark.parametrize("depth", [1, 3])
def test_queue_reset_at_any_time(depth, slow, seed):
    """Nothing is left of what was queued, in flight or on its way, in part or as a whole."""
    config = make_config(variant="baseline", preset="tiny", command_queue_depth=depth)
    dut, clear = CommandQueue(config, OPCODE), Signal()
    chances = {**FAST, slow: 0.08}

    async def testbench(ctx):
        for moment in range(2, 62, 5):
            peer = QueuePeer(dut, random.Random(f"{seed} {moment}"), **chances)
            for _ in range(moment):
                await peer.cycle(ctx, 20)
            ctx.set(clear, 1)
            await peer.cycle(ctx, 20)
            ctx.set(clear, 0)
            peer = QueuePeer(dut, random.Random(moment), **FAST)
            ctx.set(dut.push.valid, 0)
            for _ in range(moment % 4):
                await peer.cycle(ctx, 0)
            await peer.run(ctx, 2)

    simulate(ResetInserter(clear)(dut), testbench)


class Pair(wiring.Component):
    """Two queues and their semaphores."""

    def __init__(self):
        self.queues = [CommandQueue(CONFIG, OPCODE) for _ in range(2)]
        super().__init__({"blocked": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.semaphores = semaphores = Semaphores(count=CONFIG.semaphore_count, queues=2)
        for number, queue in enumerate(self.queues):
            m.submodules[f"queue{number}"] = queue
            connect(m, queue.take, semaphores.take[number])
            connect(m, queue.give, semaphores.give[number])
        m.d.comb += self.blocked.eq(self.queues[0].blocked & self.queues[1].blocked)
        return m


def test_double_buffering(seed):
    """A producer with two buffers and a consumer: neither may overtake, and both must run."""
    dut = Pair()
    count, full, free = 30, 0b01, 0b10
    rng = random.Random(seed)
    events = []

    def push(number, entries):
        async def testbench(ctx):
            port = dut.queues[number].push
            for index, (wait, signal) in enumerate(entries):
                for chunk in chunks_of(wait, signal, index):
                    ctx.set(port.payload, chunk)
                    ctx.set(port.valid, 1)
                    await ctx.tick().until(port.ready)
                ctx.set(port.valid, 0)

        return testbench

    def engine(number):
        async def testbench(ctx):
            queue = dut.queues[number]
            for index in range(count):
                ctx.set(queue.command.ready, 1)
                *_, payload = (
                    await ctx.tick().sample(queue.command.payload).until(queue.command.valid)
                )
                assert payload.dram_address == index
                events.append(("start", number, index))
                ctx.set(queue.command.ready, 0)
                for _ in range(rng.randrange(12)):
                    await ctx.tick()
                events.append(("end", number, index))
                ctx.set(queue.done, 1)
                await ctx.tick()
                ctx.set(queue.done, 0)
            for _ in range(10):
                await ctx.tick()
            assert ctx.get(queue.empty) and ctx.get(queue.blocked)

        return testbench

    # The first two productions find their buffers free.
    producer = [(0 if n < 2 else free, full) for n in range(count)]
    consumer = [(full, free if n < count - 2 else 0) for n in range(count)]
    simulate(dut, push(0, producer), push(1, consumer), engine(0), engine(1))
    order = {event: place for place, event in enumerate(events)}
    assert len(order) == 4 * count
    for index in range(count):
        assert order["end", 0, index] < order["start", 1, index], index
        if index >= 2:
            assert order["end", 1, index - 2] < order["start", 0, index], index
    together = [
        n for n in range(2, count) if order["start", 0, n] < order["end", 1, n - 1]
    ]  # fmt: skip
    assert together, "producer and consumer never worked at the same time"


def test_two_queues_that_wait_for_each_other_are_blocked():
    dut = Pair()

    async def testbench(ctx):
        assert ctx.get(dut.blocked)  # nothing to do
        for queue in dut.queues:
            ctx.set(queue.command.ready, 1)
            ctx.set(queue.push.valid, 1)
        for place in range(CHUNKS):
            for number, queue in enumerate(dut.queues):
                ctx.set(queue.push.payload, chunks_of(1 << number, 2 >> number, 0)[place])
            await ctx.tick()
            assert not ctx.get(dut.blocked)
        for queue in dut.queues:
            ctx.set(queue.push.valid, 0)
        for _ in range(dut.queues[0].latency):
            await ctx.tick()
        for _ in range(20):
            await ctx.tick()
            assert ctx.get(dut.blocked)
            assert not any(ctx.get(queue.empty) for queue in dut.queues)
            assert not any(ctx.get(queue.command.valid) for queue in dut.queues)

    simulate(dut, testbench)


def test_chunks_hold_the_whole_command():
    for opcode in QUEUE_OPCODES:
        bits = HEADER_LAYOUT.size + engine_layout(opcode).size
        assert 0 <= command_chunks(opcode) * CHUNK_WIDTH - bits < CHUNK_WIDTH
