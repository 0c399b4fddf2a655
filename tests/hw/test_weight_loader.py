"""The weight loader between a buffer that stalls and an array that takes its time."""

import itertools
import random
from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from hw.bus import BUFFER_READ_LATENCY
from hw.config import make_config
from hw.weight_loader import WeightLoader

CORE = make_config(variant="baseline", preset="tiny").cores[0]
#: Least cycles from ``tile_used`` to the first column of the tile after the next.
USED_TO_COLUMN = 3


def core_of(rows, columns):
    return replace(CORE, rows=rows, columns=columns, post_lanes=1)


def word_at(core, address):
    return random.Random(address).getrandbits(core.word_width)


class Bench:
    """Feeds commands, serves reads, uses tiles, and keeps a list of what should come.

    Chances per cycle: ``send`` a command is offered, ``read`` the buffer accepts, ``use`` a loaded
    tile becomes active, ``free`` the biases are released after that.
    """

    def __init__(self, core, commands, seed, *, send=1.0, read=1.0, use=1.0, free=1.0):
        self.core = core
        self.dut = WeightLoader(core)
        self.commands = commands
        self.rng = random.Random(f"{seed} {core.rows} {core.columns}")
        self.chances = {"send": send, "read": read, "use": use, "free": free}
        # Addresses in the order of reading; what every tile must look like.
        self.addresses, self.tiles = [], []
        for command in commands:
            address = command["address"]
            bias = None
            if command["bias"]:
                words = [(address + n) % (1 << 24) for n in range(core.bias_words)]
                self.addresses += words
                address += core.bias_words
                bias = sum(
                    word_at(core, at) << (core.word_width * n) for n, at in enumerate(words)
                ) & ((1 << 32 * core.columns) - 1)
            count = command["kw"] * command["kh"] * command["cb"]
            for tile in range(count):
                words = [(address + n) % (1 << 24) for n in range(core.columns)]
                address += core.columns
                self.addresses += words
                self.tiles.append((words, bias, tile == 0 and bias is not None))
        self.read = self.loaded = self.used = self.column = 0
        self.columns_at = []

    def chance(self, name):
        return self.rng.random() < self.chances[name]

    def run(self, limit=6000):
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)

        async def testbench(ctx):
            await self.process(ctx, limit)

        simulator.add_testbench(testbench)
        simulator.run()

    async def process(self, ctx, limit):
        dut, core = self.dut, self.core
        sent, cycle = 0, 0
        arriving = [None] * BUFFER_READ_LATENCY
        bias_pending = False  # a bias that was used but is not released yet
        used_at = -100
        offered = False
        assert not ctx.get(dut.read.valid) and not ctx.get(dut.w_valid)
        while self.used < len(self.tiles) or bias_pending:
            assert cycle < limit, f"{self.used} of {len(self.tiles)} tiles in {limit} cycles"
            offered = offered or (sent < len(self.commands) and self.chance("send"))
            ctx.set(dut.command.valid, offered)
            if offered:
                ctx.set(dut.command.payload, self.commands[sent])
            accepts = self.chance("read")
            ctx.set(dut.read.ready, accepts)
            data = arriving.pop(0)
            ctx.set(dut.read.data, 0 if data is None else word_at(core, data))

            releases = bias_pending and self.chance("free")
            ctx.set(dut.bias_used, releases)
            bias_pending &= not releases
            uses = self.used < self.loaded and not bias_pending and self.chance("use")
            if uses:
                # The second tile of a command may come while the biases of the first are in use.
                bias_pending = self.tiles[self.used][2]
                used_at = cycle
            ctx.set(dut.tile_used, uses)

            arriving.append(None)
            if ctx.get(dut.read.valid) and accepts:
                assert self.read < len(self.addresses), "a read too many"
                actual, expected = ctx.get(dut.read.address), self.addresses[self.read]
                assert actual == expected, f"read {self.read}: {actual:#x}, not {expected:#x}"
                arriving[-1] = expected
                self.read += 1
            self.check_column(ctx, data, cycle, used_at)
            tile = self.used if self.used < self.loaded else self.used - 1
            if tile >= 0 and (self.used < self.loaded or bias_pending):
                _, bias, first = self.tiles[tile]
                if first:
                    actual = ctx.get(dut.bias)
                    assert actual == bias, f"tile {tile}: bias {actual:#x}, expected {bias:#x}"
            self.used += uses
            if offered and ctx.get(dut.command.ready):
                offered = False
                sent += 1
            await ctx.tick()
            cycle += 1
        ctx.set(dut.tile_used, 0)
        ctx.set(dut.bias_used, 0)
        for _ in range(10):
            assert not ctx.get(dut.read.valid), "a read after the end"
            await ctx.tick()

    def check_column(self, ctx, data, cycle, used_at):
        dut = self.dut
        loaded = ctx.get(dut.tile_loaded)
        if not ctx.get(dut.w_valid):
            assert not loaded
            return
        place = f"tile {self.loaded}, column {self.column}"
        words, _, _ = self.tiles[self.loaded]
        assert data == words[self.column], f"{place}: word {data}, not {words[self.column]:#x}"
        assert ctx.get(dut.w_column) == self.column, place
        assert ctx.get(dut.w_bank) == self.loaded % 2, place
        assert ctx.get(dut.w_data) == word_at(self.core, data), place
        assert loaded == (self.column == self.core.columns - 1), place
        # The tile in use and one waiting: nothing may be written over them.
        assert self.loaded <= self.used, f"{place} comes while tile {self.used} is not in use"
        if self.column == 0 and self.loaded:
            assert cycle - used_at >= USED_TO_COLUMN, place
        self.columns_at.append(cycle)
        self.column += 1
        if loaded:
            self.column = 0
            self.loaded += 1


def random_commands(rng, count):
    return [
        {
            "address": rng.choice([0, 5, 1000, 0x7FFFFE, 0x800000, 0xFFFFFE]),
            "bias": rng.randrange(2),
            "kw": rng.randint(1, 3),
            "kh": rng.randint(1, 2),
            "cb": rng.randint(1, 3),
        }
        for _ in range(count)
    ]


SLOW = [{}, {"read": 0.4}, {"use": 0.05}, {"free": 0.05}, {"send": 0.1}]


@pytest.mark.parametrize("chances", SLOW, ids=["fast", "read", "use", "free", "send"])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 5), (1, 1), (2, 1), (12, 15)])
def test_random_commands(rows, columns, chances, seed):
    commands = random_commands(random.Random(f"{seed} {rows} {columns} {chances}"), 8)
    bench = Bench(core_of(rows, columns), commands, seed, **chances)
    bench.run()
    assert bench.used == bench.loaded == len(bench.tiles)
    assert bench.read == len(bench.addresses)


def test_a_column_in_every_cycle(seed):
    core = core_of(4, 6)
    commands = [{"address": 8, "bias": 1, "kw": 3, "kh": 3, "cb": 1}]
    bench = Bench(core, commands, seed)
    bench.run()
    for start in range(0, len(bench.columns_at), core.columns):
        cycles = bench.columns_at[start : start + core.columns]
        assert {b - a for a, b in itertools.pairwise(cycles)} == {1}, cycles


def test_one_tile_ahead_and_no_further(seed):
    """With tiles that nobody uses, exactly one is read."""
    core = core_of(4, 4)
    dut = WeightLoader(core)
    reads = []

    async def testbench(ctx):
        ctx.set(dut.read.ready, 1)
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.command.payload, {"address": 0, "bias": 0, "kw": 9, "kh": 1, "cb": 1})
        for tiles in range(1, 4):
            for _ in range(30):
                if ctx.get(dut.read.valid):
                    reads.append(ctx.get(dut.read.address))
                await ctx.tick()
            assert reads == list(range(tiles * core.columns))
            ctx.set(dut.tile_used, 1)
            await ctx.tick()
            ctx.set(dut.tile_used, 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


def test_biases_wait_for_their_release(seed):
    """The biases of the next command are not read before those of this one are released."""
    core = core_of(4, 4)
    dut = WeightLoader(core)
    command = {"address": 0, "bias": 1, "kw": 1, "kh": 1, "cb": 1}

    async def testbench(ctx):
        ctx.set(dut.read.ready, 1)
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.command.payload, command)
        ctx.set(dut.tile_used, 1)  # the weights are never in the way
        count = 0
        for round_ in range(1, 4):
            for _ in range(40):
                count += ctx.get(dut.read.valid)
                await ctx.tick()
            assert count == round_ * (core.bias_words + core.columns)
            ctx.set(dut.bias_used, 1)
            await ctx.tick()
            ctx.set(dut.bias_used, 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


def test_the_bench_finds_a_wrong_order(seed):
    commands = [{"address": 0, "bias": 1, "kw": 2, "kh": 1, "cb": 1}]
    bench = Bench(core_of(4, 4), commands, seed)
    bench.addresses[7], bench.addresses[8] = bench.addresses[8], bench.addresses[7]
    with pytest.raises(AssertionError, match="read 7: 0x7, not 0x8"):
        bench.run()
