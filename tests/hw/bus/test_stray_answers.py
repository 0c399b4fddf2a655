"""ReadMux and WriteMux: answers of the bus that nobody has asked for.

Covers: hw/bus/axi_mux.py.
"""

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from hw.bus.axi_mux import ReadMux, WriteMux
from hw.config import make_config
from hw.isa.error_codes import ErrorCode

CONFIG = make_config(preset="tiny")


class Resettable(wiring.Component):
    """A multiplexer with a reset of its own."""

    def __init__(self, mux):
        self.mux = mux
        self.reset = Signal()
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.mux = ResetInserter(self.reset)(self.mux)
        return m


class Strays:
    """A multiplexer whose requesters never take anything unless told to, and a slave that sends
    what it likes.

    ``channel``: the name of the answers' channel, "r" or "b"; ``seen``: (requester, payload) of
    what reached a requester, ``errors``: IDs of the reported errors.
    """

    def __init__(self, mux, channel):
        self.mux, self.channel = mux, channel
        self.dut = Resettable(mux)
        self.seen, self.errors = [], []

    def simulate(self, process):
        async def testbench(ctx):
            self.ctx = ctx
            ports = [self.mux.axi.arready] if self.channel == "r" else []
            if self.channel == "b":
                ports = [self.mux.axi.awready, self.mux.axi.wready]
            for port in ports:
                ctx.set(port, 1)
            await process(self)

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()

    def answers(self, index):
        requester = self.mux.requesters[index]
        return requester.data if self.channel == "r" else requester.response

    async def step(self):
        ctx, error = self.ctx, self.mux.error
        for index in range(self.mux.count):
            stream = self.answers(index)
            if ctx.get(stream.valid) and ctx.get(stream.ready):
                payload = ctx.get(stream.payload)
                self.seen.append((index, payload.data if self.channel == "r" else payload))
        if ctx.get(error.valid):
            assert ctx.get(error.code) == ErrorCode.UNEXPECTED_RESPONSE
            self.errors.append(ctx.get(error.address))
        await ctx.tick()

    async def send(self, number, value, *, last=1):
        """An answer of the slave, which must be taken at once."""
        ctx, axi = self.ctx, self.mux.axi
        ctx.set(getattr(axi, f"{self.channel}id"), number)
        ctx.set(getattr(axi, f"{self.channel}valid"), 1)
        if self.channel == "r":
            ctx.set(axi.rdata, value)
            ctx.set(axi.rlast, last)
        else:
            ctx.set(axi.bresp, value)
        assert ctx.get(getattr(axi, f"{self.channel}ready")), f"an answer to {number} is held up"
        await self.step()
        ctx.set(getattr(axi, f"{self.channel}valid"), 0)

    async def ask(self, index, *, beats=True):
        """A burst of one beat, until it is on the bus; without its beat if not ``beats``."""
        ctx, channel = self.ctx, self.mux.requesters[index]
        ctx.set(channel.request.payload, {"address": 0x40, "length": 0})
        ctx.set(channel.request.valid, 1)
        while not ctx.get(channel.request.ready):
            await self.step()
        await self.step()
        ctx.set(channel.request.valid, 0)
        if self.channel == "b" and beats:
            ctx.set(channel.data.payload, {"data": 1, "strb": 1, "last": 1})
            ctx.set(channel.data.valid, 1)
            while not ctx.get(channel.data.ready):
                await self.step()
            await self.step()
            ctx.set(channel.data.valid, 0)
        await self.step()

    async def drained(self):
        for _ in range(3):
            await self.step()


def make(channel, requesters, outstanding=2):
    mux = ReadMux if channel == "r" else WriteMux
    return mux(CONFIG, requesters, outstanding=outstanding)


@pytest.mark.parametrize("channel", ["r", "b"])
@pytest.mark.parametrize("requesters", [1, 2, 3])
def test_answers_that_nobody_waits_for(channel, requesters):
    """They are taken at once, of every ID, reach nobody and are reported; also between answers
    that are waited for, more than were asked for, and behind a reset."""

    async def process(bench):
        ctx, ids = bench.ctx, range(1 << bench.mux.id_width)
        # No requester takes anything: none needs to.
        for number in ids:
            await bench.send(number, 1, last=number & 1)
        await bench.drained()
        assert bench.errors == list(ids)
        for index in range(requesters):
            ctx.set(bench.answers(index).ready, 1)
        for index in range(requesters):
            bench.errors.clear(), bench.seen.clear()
            for _ in range(2):
                await bench.ask(index)
            others = [number for number in ids if number != index]
            for number in (*others, index, *others, index, index, *others):
                await bench.send(number, number & 3)
            await bench.drained()
            assert bench.errors == [*others, *others, index, *others], f"requester {index}"
            assert bench.seen == [(index, index & 3)] * 2
        # What is owed is forgotten with a reset.
        for index in range(requesters):
            bench.errors.clear(), bench.seen.clear()
            await bench.ask(index)
            ctx.set(bench.dut.reset, 1)
            await bench.step()
            ctx.set(bench.dut.reset, 0)
            await bench.send(index, 1)
            await bench.drained()
            assert (bench.errors, bench.seen) == ([index], [])
            await bench.ask(index)
            await bench.send(index, 2)
            await bench.drained()
            assert (bench.errors, bench.seen) == ([index], [(index, 2)])
            await bench.send(index, 3)
            await bench.drained()
            assert (bench.errors, bench.seen) == ([index] * 2, [(index, 2)])

    Strays(make(channel, requesters), channel).simulate(process)


@pytest.mark.parametrize("channel", ["r", "b"])
def test_as_many_as_may_be_outstanding(channel):
    """Each gets its answer, and one answer more is too many."""

    async def process(bench):
        bench.ctx.set(bench.answers(1).ready, 1)
        for count in (5, 1, 4, 5):
            bench.errors.clear(), bench.seen.clear()
            for _ in range(count):
                await bench.ask(1)
            for number in range(count + 1):
                await bench.send(1, number % 4)
            await bench.drained()
            assert bench.errors == [1]
            assert bench.seen == [(1, number % 4) for number in range(count)]

    Strays(make(channel, 2, outstanding=5), channel).simulate(process)


@pytest.mark.parametrize("channel", ["r", "b"])
def test_a_reset_behind_an_answer(channel):
    """What nobody asked for is not reported behind a reset."""

    async def process(bench):
        ctx = bench.ctx
        for delay in range(3):
            for cycle in range(3):
                ctx.set(bench.dut.reset, cycle == delay)
                await (bench.step() if cycle else bench.send(0, 1))
                if cycle == delay:
                    bench.errors.clear()
            ctx.set(bench.dut.reset, 0)
            await bench.drained()
            assert bench.errors == [], delay

    Strays(make(channel, 2), channel).simulate(process)


def test_an_answer_before_its_time():
    """To a read whose address is not accepted, and to a write whose beats are not sent."""

    async def read(bench):
        bench.ctx.set(bench.answers(0).ready, 1)
        bench.ctx.set(bench.mux.axi.arready, 0)
        await bench.ask(0)
        await bench.send(0, 1)
        bench.ctx.set(bench.mux.axi.arready, 1)
        await bench.step()
        await bench.send(0, 2)
        await bench.drained()
        assert (bench.errors, bench.seen) == ([0], [(0, 2)])

    async def write(bench):
        bench.ctx.set(bench.answers(0).ready, 1)
        await bench.ask(0, beats=False)
        await bench.send(0, 1)
        await bench.drained()
        assert (bench.errors, bench.seen) == ([0], [])

    Strays(make("r", 1), "r").simulate(read)
    Strays(make("b", 1), "b").simulate(write)


def test_strays_do_not_hold_up_a_burst():
    """One stray beat per cycle, and none is lost of the burst behind them."""

    async def process(bench):
        bench.ctx.set(bench.answers(1).ready, 1)
        await bench.ask(1)
        for _ in range(20):
            await bench.send(0, 7, last=0)
        for beat in range(4):
            await bench.send(1, beat, last=beat == 3)
        await bench.drained()
        assert bench.errors == [0] * 20
        assert bench.seen == [(1, beat) for beat in range(4)]

    Strays(make("r", 2), "r").simulate(process)
