"""ReadMux and WriteMux: IDs, turns, order of the beats, routing of what comes back."""

import random

import pytest
from amaranth.sim import Simulator

from hw.bus.axi_mux import ReadMux, WriteMux
from hw.config import make_config

CONFIG = make_config(preset="tiny", axi_prot=5)
BURSTS = 12


def _simulate(dut, testbenches):
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for testbench in testbenches:
        simulator.add_testbench(testbench)
    simulator.run()


@pytest.mark.parametrize("requesters", [1, 2, 3])
def test_read_mux(requesters, seed):
    """Every requester gets its own beats, in order, from a slave that interleaves the IDs."""
    dut = ReadMux(CONFIG, requesters, outstanding=BURSTS)
    rng = random.Random(seed)
    taken = {index: [] for index in range(requesters)}
    bursts = {
        index: [(0x1000 * index + 0x100 * n, rng.randrange(4)) for n in range(BURSTS)]
        for index in range(requesters)
    }

    def request(index):
        async def testbench(ctx):
            channel = dut.requesters[index].request
            for address, length in bursts[index]:
                ctx.set(channel.payload, {"address": address, "length": length})
                ctx.set(channel.valid, 1)
                await ctx.tick().until(channel.ready)
                ctx.set(channel.valid, 0)

        return testbench

    def receive(index):
        async def testbench(ctx):
            channel = dut.requesters[index].data
            generator = random.Random(f"{seed} {index}")
            want = [
                (address + beat, beat == length)
                for address, length in bursts[index]
                for beat in range(length + 1)
            ]
            while len(taken[index]) < len(want):
                ready = generator.random() < 0.6
                ctx.set(channel.ready, ready)
                *_, valid, payload = await ctx.tick().sample(channel.valid, channel.payload)
                if valid and ready:
                    taken[index].append((payload.data, payload.last))
                    assert payload.resp == index % 4
            ctx.set(channel.ready, 0)
            assert taken[index] == want, f"requester {index}"

        return testbench

    async def slave(ctx):
        axi = dut.axi
        queues, served = {index: [] for index in range(requesters)}, []
        total = sum(length + 1 for some in bursts.values() for _, length in some)
        sent, current = 0, None
        for _ in range(4000):
            ctx.set(axi.arready, rng.random() < 0.7)
            if current is None and rng.random() < 0.8:
                ready = [index for index in queues if queues[index]]
                if ready:
                    current = rng.choice(ready)
                    data, last = queues[current].pop(0)
                    ctx.set(axi.rid, current)
                    ctx.set(axi.rdata, data)
                    ctx.set(axi.rlast, last)
                    ctx.set(axi.rresp, current % 4)
            ctx.set(axi.rvalid, current is not None)
            signals = (axi.arvalid, axi.arready, axi.arid, axi.araddr, axi.arlen, axi.rready)
            *_, valid, ready, number, address, length, taken_beat = await ctx.tick().sample(
                *signals
            )
            if valid and ready:
                assert ctx.get(axi.arsize) == 3
                assert ctx.get(axi.arburst) == 1
                assert ctx.get(axi.arcache) == 3
                assert ctx.get(axi.arprot) == CONFIG.axi_prot
                served.append(number)
                queues[number] += [(address + n, n == length) for n in range(length + 1)]
            if current is not None and taken_beat:
                current = None
                sent += 1
                if sent == total:
                    break
        assert sent == total, f"{sent} of {total} beats sent"
        ctx.set(axi.rvalid, 0)
        # Everybody asks all the time, so they take turns.
        turns = served[: requesters * (BURSTS - 2)]
        for start in range(0, len(turns), requesters):
            assert sorted(turns[start : start + requesters]) == list(range(requesters)), served

    benches = [request(index) for index in range(requesters)]
    benches += [receive(index) for index in range(requesters)]
    _simulate(dut, [*benches, slave])


@pytest.mark.parametrize("requesters", [1, 2, 3])
def test_write_mux(requesters, seed):
    """Beats follow the order of the addresses; responses find their requester."""
    dut = WriteMux(CONFIG, requesters, outstanding=BURSTS)
    rng = random.Random(seed)
    bursts = {
        index: [(0x1000 * index + 0x100 * n, rng.randrange(4)) for n in range(BURSTS)]
        for index in range(requesters)
    }
    responses = {index: [] for index in range(requesters)}

    def request(index):
        async def testbench(ctx):
            channel = dut.requesters[index].request
            for address, length in bursts[index]:
                ctx.set(channel.payload, {"address": address, "length": length})
                ctx.set(channel.valid, 1)
                await ctx.tick().until(channel.ready)
                ctx.set(channel.valid, 0)

        return testbench

    def send(index):
        async def testbench(ctx):
            channel = dut.requesters[index].data
            generator = random.Random(f"{seed} {index}")
            for address, length in bursts[index]:
                for beat in range(length + 1):
                    while generator.random() < 0.3:
                        await ctx.tick()
                    item = {"data": address + beat, "strb": index + 1, "last": beat == length}
                    ctx.set(channel.payload, item)
                    ctx.set(channel.valid, 1)
                    await ctx.tick().until(channel.ready)
                    ctx.set(channel.valid, 0)

        return testbench

    def answer(index):
        async def testbench(ctx):
            channel = dut.requesters[index].response
            ctx.set(channel.ready, 1)
            while len(responses[index]) < BURSTS:
                *_, valid, payload = await ctx.tick().sample(channel.valid, channel.payload)
                if valid:
                    responses[index].append(payload)

        return testbench

    async def slave(ctx):
        axi = dut.axi
        expected, waiting, got, finished = [], [], 0, 0
        pending = None
        for _ in range(6000):
            ctx.set(axi.awready, rng.random() < 0.7)
            ctx.set(axi.wready, rng.random() < 0.7)
            if pending is None and waiting and rng.random() < 0.5:
                pending = waiting.pop(rng.randrange(len(waiting)))
                ctx.set(axi.bid, pending)
                ctx.set(axi.bresp, pending % 4)
            ctx.set(axi.bvalid, pending is not None)
            signals = (
                axi.awvalid, axi.awready, axi.awid, axi.awaddr, axi.awlen,
                axi.wvalid, axi.wready, axi.wdata, axi.wstrb, axi.wlast, axi.bready,
            )  # fmt: skip
            (
                *_,
                av,
                ar,
                number,
                address,
                length,
                wv,
                wr,
                data,
                strb,
                last,
                br,
            ) = await ctx.tick().sample(*signals)
            if av and ar:
                assert ctx.get(axi.awprot) == CONFIG.axi_prot
                expected += [(address + n, number + 1, n == length) for n in range(length + 1)]
            if wv and wr:
                # The beat may be here before its address was accepted.
                actual = (data, strb, last)
                if got < len(expected):
                    assert actual == expected[got], f"beat {got}"
                got += 1
                if last:
                    waiting.append(strb - 1)
            if pending is not None and br:
                pending = None
                finished += 1
                if finished == requesters * BURSTS:
                    break
        assert finished == requesters * BURSTS, f"{finished} responses"
        assert got == len(expected)
        ctx.set(axi.bvalid, 0)

    benches = [make(index) for index in range(requesters) for make in (request, send, answer)]
    _simulate(dut, [*benches, slave])
    for index in range(requesters):
        assert responses[index] == [index % 4] * BURSTS
