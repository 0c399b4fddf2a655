"""Two masters at one memory: everything arrives once, in order, where it belongs, in turn."""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from boards.soc.axi_arbiter import AxiArbiter


def run(process):
    dut = AxiArbiter(address_width=32, data_width=32, id_width=2)
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)

    async def testbench(ctx):
        await process(ctx, dut)

    simulator.add_testbench(testbench)
    simulator.run()


def drive(ctx, side, channel, item, fields):
    ctx.set(getattr(side, f"{channel}valid"), item is not None)
    for name, value in zip(fields, item or (0,) * len(fields), strict=True):
        ctx.set(getattr(side, f"{channel}{name}"), value)


def moves(ctx, side, channel):
    return ctx.get(getattr(side, f"{channel}valid") & getattr(side, f"{channel}ready"))


REQUEST, DATA = ("id", "addr", "len"), ("data", "strb", "last")


@pytest.mark.parametrize("ready", [1.0, 0.4])
def test_traffic(ready, seed):
    """Random requests; a slave that answers in order, and now and then does nothing."""
    rng = random.Random(seed)

    async def process(ctx, dut):
        masters, slave = dut.masters, dut.slave
        send = {}
        for master in range(2):
            bursts = [(rng.randrange(4), rng.randrange(1 << 32), rng.randrange(4))
                      for _ in range(30)]  # fmt: skip
            send[master, "ar"] = deque(bursts[:15])
            send[master, "aw"] = deque(bursts[15:])
            send[master, "w"] = deque(
                (rng.randrange(1 << 32), rng.randrange(16), beat == length)
                for _, _, length in bursts[15:]
                for beat in range(length + 1)
            )
        expected = {key: list(items) for key, items in send.items()}
        out = dict.fromkeys(send)
        seen = {key: [] for key in send}
        seen |= {(master, channel): [] for master in range(2) for channel in "rb"}
        answers = {"r": deque(), "b": deque()}
        begun, written, current = deque(), [], {"r": None, "b": None}
        for cycle in range(4000):
            if cycle > 100 and not any(send.values()) and not any(out.values()):
                if not any(answers.values()) and not any(current.values()):
                    break
            for (master, channel), item in out.items():
                if item is None and send[master, channel] and rng.random() < 0.7:
                    out[master, channel] = send[master, channel][0]
                fields = DATA if channel == "w" else REQUEST
                drive(ctx, masters[master], channel, out[master, channel], fields)
            for channel in ("ar", "aw", "w"):
                ctx.set(getattr(slave, f"{channel}ready"), rng.random() < ready)
            for channel, fields in (("r", ("id", "data", "last")), ("b", ("id",))):
                if current[channel] is None and answers[channel] and rng.random() < 0.6:
                    current[channel] = answers[channel].popleft()
                drive(ctx, slave, channel, current[channel], fields)
                for master in masters:
                    ctx.set(getattr(master, f"{channel}ready"), rng.random() < ready)
            taken = []
            for channel in ("ar", "aw"):
                if moves(ctx, slave, channel):
                    number = ctx.get(getattr(slave, f"{channel}id"))
                    item = tuple(ctx.get(getattr(slave, f"{channel}{n}")) for n in REQUEST[1:])
                    seen[number & 1, channel].append((number >> 1, *item))
                    if channel == "ar":
                        for beat in range(item[1] + 1):
                            answers["r"].append((number, rng.randrange(1 << 32), beat == item[1]))
                    else:
                        begun.append(number)
            if moves(ctx, slave, "w"):
                written.append(tuple(ctx.get(getattr(slave, f"w{name}")) for name in DATA))
                seen[begun[0] & 1, "w"].append(written[-1])
                if written[-1][2]:
                    answers["b"].append((begun.popleft(),))
            for key in out:
                if moves(ctx, masters[key[0]], key[1]):
                    taken.append(key)
            for channel, fields in (("r", ("id", "data", "last")), ("b", ("id",))):
                for index, master in enumerate(masters):
                    if moves(ctx, master, channel):
                        got = tuple(ctx.get(getattr(master, f"{channel}{n}")) for n in fields)
                        wanted = current[channel]
                        assert got == (wanted[0] >> 1, *wanted[1:]) and wanted[0] & 1 == index
                        seen[index, channel].append(got)
                if moves(ctx, slave, channel):
                    current[channel] = None
            await ctx.tick()
            for key in taken:
                send[key].popleft()
                out[key] = None
        assert {key: seen[key] for key in expected} == expected
        for master in range(2):
            assert len(seen[master, "b"]) == 15
            assert len(seen[master, "r"]) == sum(item[2] + 1 for item in expected[master, "ar"])

    run(process)


def test_in_turn():
    """Both want to read all the time: each gets every other request, and one that waits stays."""

    async def process(ctx, dut):
        for index, master in enumerate(dut.masters):
            drive(ctx, master, "ar", (index, 16 * index, 0), REQUEST)
        shown = ctx.get(dut.slave.araddr)
        for _ in range(3):  # not ready
            assert ctx.get(dut.slave.arvalid) and ctx.get(dut.slave.araddr) == shown
            await ctx.tick()
        ctx.set(dut.slave.arready, 1)
        order = []
        for _ in range(6):
            order.append(ctx.get(dut.slave.arid) & 1)
            await ctx.tick()
        assert order in ([0, 1] * 3, [1, 0] * 3)

    run(process)
