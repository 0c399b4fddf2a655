"""ReadMux and WriteMux: IDs, turns, order of the beats, routing of what comes back."""

import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib.wiring import Flow
from amaranth.sim import Simulator

from hw.bus.axi_mux import ReadMux, WriteMux, axi_id_width, connect_axi_half
from hw.bus.signatures import AXI4Signature
from hw.config import make_config

CONFIG = make_config(preset="tiny", axi_prot=5)
BURSTS = 12


def _data(address):
    """64 bits that no other address has, the highest among them."""
    return address * 0x9E37_79B9_7F4A_7C15 & (1 << 64) - 1


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
                (_data(address + beat), beat == length)
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
                queues[number] += [(_data(address + n), n == length) for n in range(length + 1)]
            if current is not None and taken_beat:
                current = None
                sent += 1
                if sent == total:
                    break
        assert sent == total, f"{sent} of {total} beats sent"
        ctx.set(axi.rvalid, 0)
        # Everybody asks all the time, so they take turns.
        turns = served[: requesters * (BURSTS - 2)]
        assert turns == [(turns[0] + n) % requesters for n in range(len(turns))], served

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
                    item = {
                        "data": _data(address + beat),
                        "strb": 0x81 + index,
                        "last": beat == length,
                    }
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
                expected += [
                    (_data(address + n), 0x81 + number, n == length) for n in range(length + 1)
                ]
            if wv and wr:
                # The beat may be here before its address was accepted.
                actual = (data, strb, last)
                if got < len(expected):
                    assert actual == expected[got], f"beat {got}"
                got += 1
                if last:
                    waiting.append(strb - 0x81)
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


@pytest.mark.parametrize("mux", [ReadMux, WriteMux])
def test_every_bit_of_a_request(mux):
    """The longest burst at the highest address, of the last requester."""
    dut = mux(CONFIG, 3, outstanding=2)
    prefix = "ar" if mux is ReadMux else "aw"
    address = (1 << CONFIG.axi_address_width) - CONFIG.beat_bytes
    wanted = {
        "id": 2, "addr": address, "len": 255, "size": 3, "burst": 1, "lock": 0, "cache": 3,
        "prot": CONFIG.axi_prot, "qos": 0,
    }  # fmt: skip

    async def testbench(ctx):
        channel = dut.requesters[2].request
        ctx.set(channel.payload, {"address": address, "length": 255})
        ctx.set(channel.valid, 1)
        await ctx.tick().until(channel.ready)
        ctx.set(channel.valid, 0)
        assert ctx.get(getattr(dut.axi, f"{prefix}valid"))
        assert {name: ctx.get(getattr(dut.axi, prefix + name)) for name in wanted} == wanted

    _simulate(dut, [testbench])


@pytest.mark.parametrize("mux", [ReadMux, WriteMux])
def test_turns_begin_anew_with_a_reset(mux):
    dut, clear = mux(CONFIG, 3, outstanding=4), Signal()
    prefix = "ar" if mux is ReadMux else "aw"

    async def testbench(ctx):
        ctx.set(getattr(dut.axi, f"{prefix}ready"), 1)
        for asking in ((0, 1, 2), (2,), (0, 1, 2), (1,), (0, 1, 2)):
            for index in range(3):
                ctx.set(dut.requesters[index].request.valid, index in asking)
            served = []
            for _ in range(6):
                if ctx.get(getattr(dut.axi, f"{prefix}valid")):
                    served.append(ctx.get(getattr(dut.axi, f"{prefix}id")))
                await ctx.tick()
            assert served == ([1, 2, 0] if len(asking) > 1 else [*asking] * 3)
            ctx.set(clear, 1)
            await ctx.tick()
            ctx.set(clear, 0)

    _simulate(ResetInserter(clear)(dut), [testbench])


def test_bits_of_an_id():
    assert [axi_id_width(requesters) for requesters in range(1, 10)] == [1, 1, 2, 2] + [3] * 4 + [4]


@pytest.mark.parametrize("mux", [ReadMux, WriteMux])
def test_the_halves_of_a_port(mux, seed):
    """Every bit of every signal, in its direction."""
    half = mux(CONFIG, 3, outstanding=2).axi
    axi = AXI4Signature(
        address_width=CONFIG.axi_address_width, data_width=CONFIG.axi_data_width, id_width=2
    ).create()
    m, rng = Module(), random.Random(seed)
    connect_axi_half(m, half, axi)
    m.d.sync += Signal().eq(0)  # a clock

    async def testbench(ctx):
        for name, member in half.signature.members.items():
            ends = getattr(half, name), getattr(axi, name)
            source, sink = ends if member.flow is Flow.Out else reversed(ends)
            ones = (1 << len(source)) - 1
            for value in (ones, rng.getrandbits(len(source)), 0):
                ctx.set(source, value)
                assert ctx.get(sink) == value, name

    _simulate(m, [testbench])
