"""AXI4LiteTarget: every access once and in order, at any pace of master and registers."""

import random

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from hw.bus.axi_lite import AXI4LiteTarget

ADDRESS_WIDTH = 10


def simulate(testbench):
    """Run ``testbench(ctx, dut, clear)``; ``clear`` is a Signal that resets the design."""
    dut, clear = AXI4LiteTarget(address_width=ADDRESS_WIDTH), Signal()

    async def bench(ctx):
        await testbench(ctx, dut, clear)

    simulator = Simulator(ResetInserter(clear)(dut))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


class Peer:
    """A master and the registers behind the target; checks every output in every cycle.

    Chances per cycle: ``aw``, ``w``, ``ar`` an access is offered, ``b``, ``r`` its response is
    taken (``late``: not before it is there), ``access`` a read is answered. What is not valid is
    noise. ``sent``: accesses per channel that the target has accepted; ``written``, ``read``: those
    that the registers have seen; ``answered``: responses per channel that were taken.
    """

    def __init__(self, dut, rng, *, count, late=False, **chances):
        self.dut, self.rng, self.count, self.late = dut, rng, count, late
        self.chances = dict.fromkeys(("aw", "w", "b", "ar", "r", "access"), 1.0) | chances
        bits = rng.getrandbits
        address = ADDRESS_WIDTH - 2
        self.writes = [(bits(address), bits(32), bits(4), bits(2)) for _ in range(count)]
        self.reads = [(bits(address), bits(32), bits(2)) for _ in range(count)]
        self.sent = {"aw": 0, "w": 0, "ar": 0}
        self.written = self.read = 0
        self.answered = {"b": 0, "r": 0}
        self.offered = dict.fromkeys(self.sent, False)

    @property
    def over(self):
        return set(self.answered.values()) == {self.count}

    def _chance(self, name):
        return self.rng.random() < self.chances[name]

    def _noise(self, signal):
        return self.rng.getrandbits(len(signal))

    async def cycle(self, ctx):
        dut, bus = self.dut, self.dut.bus
        # What the target has taken and not passed on, and has passed on and not answered.
        held = {"aw": self.sent["aw"] - self.written, "w": self.sent["w"] - self.written}
        reading = self.sent["ar"] - self.read
        owed = {"b": self.written - self.answered["b"], "r": self.read - self.answered["r"]}

        for name in self.sent:
            if not self.offered[name]:
                self.offered[name] = self.sent[name] < self.count and self._chance(name)
            ctx.set(getattr(bus, f"{name}valid"), self.offered[name])
            signals = (bus.wdata, bus.wstrb) if name == "w" else (getattr(bus, f"{name}addr"),)
            values = [self._noise(signal) for signal in signals]
            if self.offered[name]:
                index = self.sent[name]
                item = self.reads[index] if name == "ar" else self.writes[index]
                # The two lowest bits of an address mean nothing.
                values = item[1:3] if name == "w" else [4 * item[0] + self.rng.getrandbits(2)]
            for signal, value in zip(signals, values, strict=True):
                ctx.set(signal, value)
        taken = {}
        for name in owed:
            taken[name] = self._chance(name) and not (self.late and not owed[name])
            ctx.set(getattr(bus, f"{name}ready"), taken[name])

        assert ctx.get(bus.awready) == (not held["aw"])
        assert ctx.get(bus.wready) == (not held["w"])
        assert ctx.get(bus.arready) == (not reading and not owed["r"])
        writes = bool(held["aw"] and held["w"] and (not owed["b"] or taken["b"]))
        assert ctx.get(dut.write_valid) == writes
        if writes:
            written = tuple(
                ctx.get(port) for port in (dut.write_address, dut.write_data, dut.write_strobe)
            )
            assert written == self.writes[self.written][:3], f"write {self.written}"
        ctx.set(dut.write_resp, self.writes[self.written][3] if writes else self._noise(bus.bresp))
        assert ctx.get(dut.read_valid) == reading
        accessed = self._chance("access")
        ctx.set(dut.read_ready, accessed)
        reads = bool(reading and accessed)
        if reading:
            assert ctx.get(dut.read_address) == self.reads[self.read][0], f"read {self.read}"
        answer = self.reads[self.read][1:] if reads else None
        ctx.set(dut.read_data, answer[0] if reads else self._noise(bus.rdata))
        ctx.set(dut.read_resp, answer[1] if reads else self._noise(bus.rresp))
        assert ctx.get(bus.bvalid) == owed["b"] and ctx.get(bus.rvalid) == owed["r"]
        if owed["b"]:
            assert ctx.get(bus.bresp) == self.writes[self.answered["b"]][3]
        if owed["r"]:
            got = ctx.get(bus.rdata), ctx.get(bus.rresp)
            assert got == self.reads[self.answered["r"]][1:]

        for name in self.sent:
            free = not reading and not owed["r"] if name == "ar" else not held[name]
            if self.offered[name] and free:
                self.sent[name] += 1
                self.offered[name] = False
        for name in owed:
            self.answered[name] += bool(owed[name] and taken[name])
        self.written += writes
        self.read += reads
        await ctx.tick()


@pytest.mark.parametrize("late", [False, True], ids=["ready", "ready when valid"])
@pytest.mark.parametrize("slow", [None, "aw", "w", "b", "ar", "r", "access"])
def test_random_traffic(slow, late, seed):
    async def testbench(ctx, dut, clear):
        rng = random.Random(f"{seed} {slow} {late}")
        chances = dict.fromkeys(("aw", "w", "b", "ar", "r", "access"), 0.7)
        if slow:
            chances[slow] = 0.15
        peer = Peer(dut, rng, count=25, late=late, **chances)
        for _ in range(1200):
            await peer.cycle(ctx)
            if peer.over:
                return
        raise AssertionError(f"after 1200 cycles: {peer.sent}, {peer.answered}")

    simulate(testbench)


def test_throughput():
    """A write in two cycles, a read in three, at the same time."""

    async def testbench(ctx, dut, clear):
        peer = Peer(dut, random.Random(1), count=30)
        for cycle in range(1, 100):
            await peer.cycle(ctx)
            # Accepted in the first cycle, passed on in the second, answered in the third.
            assert peer.answered == {"b": min(30, (cycle - 1) // 2), "r": min(30, cycle // 3)}

    simulate(testbench)


def test_reset_at_any_time(seed):
    """Everything under way is dropped, whatever comes in the cycle of the reset."""

    async def testbench(ctx, dut, clear):
        for moment in range(40):
            rng = random.Random(f"{seed} {moment}")
            peer = Peer(dut, rng, count=60, b=0.3, r=0.3, access=0.4)
            for _ in range(moment % 13):
                await peer.cycle(ctx)
            ctx.set(clear, 1)
            await peer.cycle(ctx)
            ctx.set(clear, 0)
            peer = Peer(dut, rng, count=3, aw=0.5, w=0.5, ar=0.5)
            while not peer.over:
                await peer.cycle(ctx)

    simulate(testbench)
