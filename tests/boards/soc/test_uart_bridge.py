"""Commands of a host become accesses of the bus, as LiteX's hosts write them.

Covers: boards/soc/host_bus.py, hw/registers/board.py.
"""

import random
import struct

from amaranth.sim import Simulator

from boards.soc.uart_bridge import UartBridge

TIMEOUT = 200


def run(commands, seed, gaps=3):
    """(accesses, answer) of bytes, with a bus on which a read returns the address's complement."""
    dut = UartBridge(timeout_cycles=TIMEOUT)
    rng = random.Random(seed)
    accesses, answer = [], bytearray()

    async def host(ctx):
        for item in commands:
            if item == "pause":
                await ctx.tick().repeat(TIMEOUT + 5)
                continue
            for byte in item:
                for _ in range(rng.randrange(gaps)):
                    await ctx.tick()
                ctx.set(dut.i.payload, byte)
                ctx.set(dut.i.valid, 1)
                while not ctx.get(dut.i.ready):
                    await ctx.tick()
                await ctx.tick()
                ctx.set(dut.i.valid, 0)
        await ctx.tick().repeat(600)

    async def bus(ctx):
        while True:
            await ctx.tick()
            if not ctx.get(dut.bus.valid):
                continue
            for _ in range(rng.randrange(4)):
                await ctx.tick()
            address, write = ctx.get(dut.bus.address), ctx.get(dut.bus.write)
            accesses.append((address, ctx.get(dut.bus.write_data)) if write else address)
            ctx.set(dut.bus.read_data, ~address & 0xFFFFFFFF)
            ctx.set(dut.bus.ready, 1)
            await ctx.tick()
            ctx.set(dut.bus.ready, 0)

    async def receive(ctx):
        while True:
            ctx.set(dut.o.ready, rng.random() < 0.3)
            if ctx.get(dut.o.valid & dut.o.ready):
                answer.append(ctx.get(dut.o.payload))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(host)
    simulator.add_testbench(bus, background=True)
    simulator.add_testbench(receive, background=True)
    simulator.run()
    return accesses, bytes(answer)


def head(command, count, address):
    return struct.pack(">BBI", command, count, address)


def complement(*addresses):
    return b"".join(struct.pack(">I", ~address & 0xFFFFFFFF) for address in addresses)


def test_commands(seed):
    accesses, answer = run(
        [
            head(1, 3, 0x100) + struct.pack(">3I", 0x11223344, 5, 0xFFFFFFFF),
            head(2, 2, 0x20000000),
            head(3, 2, 7) + struct.pack(">2I", 8, 9),
            head(4, 3, 6),
        ],
        seed,
    )
    assert accesses == [
        (0x100, 0x11223344), (0x101, 5), (0x102, 0xFFFFFFFF), 0x20000000, 0x20000001, (7, 8),
        (7, 9), 6, 6, 6,
    ]  # fmt: skip
    assert answer == complement(0x20000000, 0x20000001, 6, 6, 6)


def test_256_words(seed):
    """A length of 0."""
    values = list(range(256))
    accesses, answer = run([head(1, 0, 16) + struct.pack(">256I", *values), head(2, 1, 3)], seed, 1)
    assert accesses == [*((16 + value, value) for value in values), 3]
    assert answer == complement(3)


def test_unknown_and_broken_off(seed):
    """After what is no command, and after one that is not continued, the next one is understood."""
    good = head(2, 1, 9)
    for wrong in ([head(0, 1, 2)], [head(5, 1, 2)], [head(1, 1, 2) + b"\x01\x02", "pause"],
                  [b"\x01", "pause"]):  # fmt: skip
        accesses, answer = run([*wrong, good], seed)
        assert (accesses, answer) == ([9], complement(9))
