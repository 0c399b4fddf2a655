"""hw.vector_ports.SharedReadPort: one reader at a time, the first one that asks."""

from amaranth.sim import Simulator

from hw.config import make_config
from hw.vector_ports import SharedReadPort


def test_first_reader_that_asks_is_served(rng):
    core = make_config(preset="tiny", variant="baseline").cores[0]
    dut = SharedReadPort(core, 3)

    async def testbench(ctx):
        for _ in range(200):
            valid, ready = rng.integers(0, 2, 3), int(rng.integers(0, 2))
            addresses = [int(a) for a in rng.integers(0, 1 << 24, 3)]
            data = int(rng.integers(0, 1 << 62))
            for port, bit, address in zip(dut.read, valid, addresses, strict=True):
                ctx.set(port.valid, int(bit))
                ctx.set(port.address, address)
            ctx.set(dut.port.ready, ready)
            ctx.set(dut.port.data, data)
            await ctx.delay(1e-6)
            asking = [number for number in range(3) if valid[number]]
            assert ctx.get(dut.port.valid) == bool(asking)
            served = [
                number
                for number, port in enumerate(dut.read)
                if valid[number] and ctx.get(port.ready)
            ]
            assert served == (asking[:1] if ready else []), (valid, ready, served)
            if asking:
                assert ctx.get(dut.port.address) == addresses[asking[0]]
            assert {ctx.get(port.data) for port in dut.read} == {data}

    simulator = Simulator(dut)
    simulator.add_testbench(testbench)
    simulator.run()
