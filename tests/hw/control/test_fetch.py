"""Command fetch against a memory that answers as it likes.

Covers: hw/isa/error_codes.py.
"""

import itertools
import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from hw.bus.signatures import RESP_DECERR, RESP_EXOKAY, RESP_OKAY, RESP_SLVERR
from hw.config import make_config
from hw.control.fetch import AHEAD, CommandFetch
from hw.isa.error_codes import ErrorCode

BASE = 0x1234_5000


class Clearable(wiring.Component):
    """A fetch with the accelerator's clear."""

    def __init__(self, config):
        self.fetch = CommandFetch(config)
        self.clear = Signal()
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fetch = ResetInserter(self.clear)(self.fetch)
        return m


def command_at(address):
    """512 bits that no other address has, not those of a packed command."""
    return random.Random(address).getrandbits(512) & ~0x80


class Bench:
    """A fetch, its memory and its consumer.

    Chances per cycle: ``accept`` a request, ``beat`` an owed beat is sent, ``take`` the consumer is
    ready. ``answers``: address of a burst -> (beat, response other than OKAY). Checks at all times
    that bursts are whole lines of the program in order, that no more than AHEAD are requested
    and not read, that beats are never held up, and that ``busy`` is high while beats are owed.
    """

    def __init__(self, config, seed, *, accept=1.0, beat=1.0, take=1.0, latency=0, answers=None):
        self.config = config
        self.dut = Clearable(config)
        self.fetch = self.dut.fetch
        self.rng = random.Random(seed)
        self.chances = accept, beat, take
        self.latency = latency
        self.answers = answers or {}
        self.beats = 512 // config.axi_data_width
        self.cycle = 0

    def simulate(self, process):
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)

        async def testbench(ctx):
            self.ctx = ctx
            self.owed = []
            await process(self)

        simulator.add_testbench(testbench)
        simulator.run()

    async def start(self, *, address, size, base=BASE, window=0xFFFFFFFF, begin=0, at=None):
        """Clear and start, as the sequencer does, with command ``begin`` or at byte ``at``."""
        ctx, fetch = self.ctx, self.fetch
        assert not self.owed, "the bench would answer an old request"
        self.requested, self.taken, self.errors, self.taken_at = [], [], [], []
        self.stopped = False
        self.first, self.end = base + address, base + address + size
        for name, value in (
            ("memory_base", base),
            ("memory_size", window),
            ("program_address", address),
            ("first", address + (64 * begin if at is None else at)),
            ("program_size", size),
        ):
            ctx.set(getattr(fetch, name), value)
        ctx.set(fetch.stop, 0)
        ctx.set(self.dut.clear, 1)
        await ctx.tick()
        ctx.set(self.dut.clear, 0)
        assert not ctx.get(fetch.busy) and not ctx.get(fetch.command.valid)
        ctx.set(fetch.start, 1)
        await self.step(may_take=False)
        ctx.set(fetch.start, 0)

    async def step(self, *, may_take=True):
        ctx, fetch = self.ctx, self.fetch
        accept, beat, take = (self.rng.random() < chance for chance in self.chances)
        channel = fetch.read
        ctx.set(channel.request.ready, accept)
        send = beat and bool(self.owed) and self.owed[0][0] <= self.cycle
        ctx.set(channel.data.valid, send)
        if not send:  # whatever stands there then
            noise = {"data": self.rng.getrandbits(32), "resp": RESP_DECERR, "last": 1}
            ctx.set(channel.data.payload, noise)
        else:
            _, address, number, last = self.owed[0]
            bad_beat, answer = self.answers.get(address, (0, RESP_OKAY))
            ctx.set(
                channel.data.payload,
                {
                    "data": self.beat_at(address, number),
                    "resp": answer if number == bad_beat else RESP_OKAY,
                    "last": last,
                },
            )
        self.offer(take and may_take)

        if self.owed:
            assert ctx.get(fetch.busy), "beats are owed"
        if send:
            assert ctx.get(channel.data.ready), "a beat is held up"
            self.owed.pop(0)
        if ctx.get(channel.request.valid) and accept:
            address = ctx.get(channel.request.payload.address)
            length = ctx.get(channel.request.payload.length)
            self.check_request(address, length)
            self.requested.append(address)
            due = self.cycle + 1 + self.latency
            self.owed += [(due, address, n, n == length) for n in range(length + 1)]
        self.consume(take and may_take)
        if ctx.get(fetch.error.valid):
            self.errors.append((ctx.get(fetch.error.code), ctx.get(fetch.error.address)))
        await ctx.tick()
        self.cycle += 1

    def beat_at(self, address, number):
        """Beat ``number`` of the burst from ``address`` on."""
        width = self.config.axi_data_width
        return command_at(address) >> (width * number) & ((1 << width) - 1)

    def check_request(self, address, length):
        assert address == self.next_request()
        assert address + 64 <= self.end, f"{address:#x} is behind the program"
        assert length == self.beats - 1
        assert address // 4096 == (address + 63) // 4096

    def offer(self, ready):
        """What the consumer says, before the cycle's outputs are looked at."""
        self.ctx.set(self.fetch.command.ready, ready)

    def next_request(self):
        """Address of the burst that is to be requested next."""
        return self.first + 64 * len(self.requested)

    def consume(self, ready):
        """Checks what is offered, and takes it if ``ready``."""
        ctx, fetch = self.ctx, self.fetch
        assert len(self.requested) - len(self.taken) <= AHEAD + 1
        if ctx.get(fetch.command.valid):
            assert not self.stopped, "a command after the stop"
            expected = self.first + 64 * len(self.taken)
            self.check_command(expected)
            if ready:
                self.taken.append(expected)
                self.taken_at.append(self.cycle)

    def check_command(self, expected):
        assert self.ctx.get(self.fetch.address) == expected
        actual = self.ctx.get(self.fetch.command.payload)
        assert actual == command_at(expected), f"{actual:#x}, expected {command_at(expected):#x}"

    async def until(self, condition, limit=4000, **options):
        for _ in range(limit):
            if condition():
                return
            await self.step(**options)
        raise AssertionError(f"nothing in {limit} cycles: {len(self.taken)} commands taken")

    async def drain(self):
        """Steps until the bus is idle."""
        await self.until(lambda: not self.owed)
        await self.step()
        assert not self.ctx.get(self.fetch.busy)


def config_of(width):
    return make_config(preset="tiny", axi_data_width=width, axi_burst_beats=4)


@pytest.mark.parametrize("width", [32, 64, 512])
@pytest.mark.parametrize(
    "chances",
    [
        {},
        {"accept": 0.2},
        {"beat": 0.3},
        {"take": 0.1},
        {"accept": 0.5, "beat": 0.7, "take": 0.5, "latency": 17},
    ],
    ids=["fast", "requests", "beats", "consumer", "all"],
)
def test_programs_in_order(width, chances, seed):
    bench = Bench(config_of(width), seed, **chances)

    async def process(bench):
        for count in (1, 3, 17):
            # At the very end of the window.
            address = 0x2C0
            await bench.start(address=address, size=64 * count, window=address + 64 * count)
            await bench.until(lambda count=count: len(bench.taken) == count)
            await bench.until(lambda: bench.errors)
            assert bench.errors == [(ErrorCode.PROGRAM_END, BASE + address + 64 * count)]
            await bench.drain()

    bench.simulate(process)


@pytest.mark.parametrize("width", [32, 64, 256, 512])
def test_latency_and_throughput(width, seed):
    """The first request after 3 cycles; one command per 16 words and two cycles more."""
    bench = Bench(config_of(width), seed)

    async def process(bench):
        await bench.start(address=0, size=64 * 20)
        begin = bench.cycle - 1
        await bench.until(lambda: bench.requested)
        assert bench.cycle - 1 - begin == 3
        await bench.until(lambda: len(bench.taken) == 20)
        gaps = {b - a for a, b in itertools.pairwise(bench.taken_at[2:])}
        assert gaps == {18}, bench.taken_at

    bench.simulate(process)


def test_fetches_ahead_and_no_further(seed):
    bench = Bench(config_of(64), seed)

    async def process(bench):
        await bench.start(address=0, size=64 * 20)
        for taken in range(8):
            await bench.until(lambda taken=taken: len(bench.taken) == taken)
            for _ in range(60):
                await bench.step(may_take=False)
            assert len(bench.requested) == taken + 1 + AHEAD
        assert bench.errors == []

    bench.simulate(process)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127, 128, 129])
def test_program_end_only_when_a_command_is_wanted(size, seed):
    """What does not fill a command is not a command."""
    bench = Bench(config_of(64), seed)

    async def process(bench):
        whole = size // 64
        for base in (0, BASE):
            await bench.start(address=64, size=size, base=base)
            await bench.until(lambda: len(bench.taken) == whole)
            for _ in range(100):
                await bench.step(may_take=False)
            assert bench.errors == []
            await bench.until(lambda: bench.errors)
            for _ in range(10):
                await bench.step()
            assert bench.errors == [(ErrorCode.PROGRAM_END, base + 64 + 64 * whole)]
            assert len(bench.requested) == whole

    bench.simulate(process)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (RESP_SLVERR, ErrorCode.READ_SLVERR),
        (RESP_DECERR, ErrorCode.READ_DECERR),
        # Nobody asked for an exclusive access.
        (RESP_EXOKAY, ErrorCode.READ_SLVERR),
    ],
)
def test_bus_errors(answer, code, seed):
    """Reported once, with the command's address; everything before it is used, nothing after."""
    config = config_of(64)
    for number, beat, later in itertools.product((0, 1, 5), (0, 3, 7), (False, True)):
        place = BASE + 64 * number
        answers = {place: (beat, answer)}
        if later:
            answers[place + 64] = (0, RESP_DECERR)
        bench = Bench(config, f"{seed} {number} {beat}", take=0.3, beat=0.8, answers=answers)

        async def process(bench, number=number, place=place):
            await bench.start(address=0, size=64 * 12)
            await bench.until(lambda: bench.errors)
            bench.stopped = True
            await bench.drain()
            for _ in range(30):
                await bench.step()
            assert bench.errors == [(code, place)]
            assert len(bench.taken) == number
            assert len(bench.requested) <= number + 1 + AHEAD
            # The next program is not affected.
            await bench.start(address=0x8000, size=64 * 3)
            await bench.until(lambda: len(bench.taken) == 3)
            assert bench.errors == []

        bench.simulate(process)


@pytest.mark.parametrize("width", [64, 512])
def test_stop_at_any_time_and_start_again(width, seed):
    bench = Bench(config_of(width), seed, accept=0.6, beat=0.6, take=0.6, latency=5)

    async def process(bench):
        for delay in range(40):
            await bench.start(address=64 * delay, size=64 * 12)
            for _ in range(delay):
                await bench.step()
            bench.ctx.set(bench.fetch.stop, 1)
            await bench.step()
            bench.stopped = True
            requested = len(bench.requested)
            await bench.drain()
            for _ in range(10):
                await bench.step()
            assert len(bench.requested) == requested, "a request after the stop"
            assert bench.errors == []

    bench.simulate(process)


def test_the_bench_finds_a_wrong_beat(seed):
    """The memory gives a beat of the second command in the place of another."""
    bench = Bench(config_of(64), seed)

    async def process(bench):
        await bench.start(address=0, size=64 * 4)
        while not bench.owed or bench.owed[0][1] == bench.first:
            await bench.step()
        due, address, number, last = bench.owed[0]
        bench.owed[0] = (due, address, number ^ 1, last)  # another beat of the same command
        await bench.until(lambda: len(bench.taken) == 4)

    with pytest.raises(AssertionError, match=r"0x[0-9a-f]+, expected 0x"):
        bench.simulate(process)
