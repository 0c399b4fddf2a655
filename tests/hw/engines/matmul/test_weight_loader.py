"""The weight loader between a buffer that stalls and an array that takes its time."""

import itertools
import random
from dataclasses import replace

import pytest
from amaranth.sim import Simulator

from hw.bus.signatures import BUFFER_READ_LATENCY
from hw.config import make_config
from hw.engines.matmul.weight_loader import WeightLoader
from hw.isa.encoding import Opcode, encode, with_defaults

CORE = make_config(variant="baseline", preset="tiny").cores[0]
#: Least cycles from ``tile_used`` to the first column of the tile after the next.
USED_TO_COLUMN = 3
ADDRESSES = 1 << 24


def core_of(rows, columns):
    return replace(CORE, rows=rows, columns=columns, post_lanes=1)


def word_at(core, address):
    return random.Random(address).getrandbits(core.word_width)


def lanes(core, word):
    mask = (1 << core.operand_width) - 1
    return [word >> (core.operand_width * lane) & mask for lane in range(core.rows)]


def pack(core, values):
    return sum(value << (core.operand_width * lane) for lane, value in enumerate(values))


def command_of(**fields):
    values = {"address": 0, "row_stride": 1, "row_limit": 0xFFFF, "transpose": 1, **fields}
    encode(Opcode.WEIGHTS, **values)
    return with_defaults(Opcode.WEIGHTS, values)


def expected_of(core, command):
    """Addresses read, in order, and the tiles as lists of column words."""
    rows, columns = core.rows, core.columns
    addresses, tiles = [], []
    if command["bias"]:
        addresses += [(command["bias_address"] + n) % ADDRESSES for n in range(core.bias_words)]
    loops = [range(command[f"{loop}_count"]) for loop in ("cb", "kh", "kw")]
    for cb, kh, kw in itertools.product(*loops):
        base = command["address"] + sum(
            index * command[f"{loop}_stride"]
            for index, loop in ((cb, "cb"), (kh, "kh"), (kw, "kw"))
        )

        def read(exists, address, addresses=addresses):
            if not exists:
                return 0
            addresses.append(address % ADDRESSES)
            return word_at(core, address % ADDRESSES)

        if command["transpose"]:
            row_values = [[] for _ in range(rows)]
            for block, row in itertools.product(range(command["block_count"]), range(rows)):
                exists = cb * rows + row < command["row_limit"]
                address = base + row * command["row_stride"] + block
                row_values[row] += lanes(core, read(exists, address))
            tile = []
            for column in range(command["skip"], command["skip"] + columns):
                inside = column < len(row_values[0])
                tile.append(pack(core, [row[column] if inside else 0 for row in row_values]))
        else:
            tile = [
                read(column < command["row_limit"], base + column * command["row_stride"])
                for column in range(columns)
            ]
        tiles.append(tile)
    return addresses, tiles


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
        self.addresses, self.tiles, self.ends = [], [], []
        for command in commands:
            addresses, tiles = expected_of(core, command)
            bias = None
            if command["bias"]:
                bias = sum(
                    word_at(core, at) << (core.word_width * n)
                    for n, at in enumerate(addresses[: core.bias_words])
                ) & ((1 << 32 * core.columns) - 1)
            self.addresses += addresses
            self.ends.append(len(self.addresses))
            for index, tile in enumerate(tiles):
                self.tiles.append((tile, bias, index == 0 and bias is not None))
        self.read = self.loaded = self.used = self.column = self.done = 0
        self.columns_at, self.reads_at = [], []

    def chance(self, name):
        return self.rng.random() < self.chances[name]

    def run(self, limit=12000):
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
        assert ctx.get(dut.quiet) and not ctx.get(dut.holds)
        # Words that no column comes from are read, too.
        while self.used < len(self.tiles) or bias_pending or self.read < len(self.addresses):
            assert cycle < limit, f"{self.used} of {len(self.tiles)} tiles in {limit} cycles"
            offered = offered or (sent < len(self.commands) and self.chance("send"))
            ctx.set(dut.command.valid, offered)
            if offered:
                ctx.set(dut.command.payload, self.commands[sent])
            accepts = self.chance("read")
            ctx.set(dut.read.ready, accepts)
            data = arriving.pop(0)
            ctx.set(dut.read.data, 0x5A if data is None else word_at(core, data))

            releases = bias_pending and self.chance("free")
            ctx.set(dut.bias_used, releases)
            bias_pending &= not releases
            uses = self.used < self.loaded and not bias_pending and self.chance("use")
            if uses:
                # The second tile of a command may come while the biases of the first are in use.
                bias_pending = self.tiles[self.used][2]
                used_at = cycle
            ctx.set(dut.tile_used, uses)

            if ctx.get(dut.done):
                assert self.read >= self.ends[self.done], "done before the last word is read"
                self.done += 1
            arriving.append(None)
            if ctx.get(dut.read.valid) and accepts:
                assert self.read < len(self.addresses), "a read too many"
                actual, expected = ctx.get(dut.read.address), self.addresses[self.read]
                assert actual == expected, f"read {self.read}: {actual:#x}, not {expected:#x}"
                arriving[-1] = expected
                self.read += 1
                self.reads_at.append(cycle)
            self.check_column(ctx, cycle, used_at)
            tile = self.used if self.used < self.loaded else self.used - 1
            if tile >= 0 and (self.used < self.loaded or bias_pending):
                _, bias, first = self.tiles[tile]
                if first:
                    actual = ctx.get(dut.bias)
                    assert actual == bias, f"tile {tile}: bias {actual:#x}, expected {bias:#x}"
            if self.used < self.loaded:
                assert ctx.get(dut.holds), f"tile {self.used} is waiting"
            self.used += uses
            if offered and ctx.get(dut.command.ready):
                offered = False
                sent += 1
            await ctx.tick()
            cycle += 1
        ctx.set(dut.tile_used, 0)
        ctx.set(dut.bias_used, 0)
        for _ in range(10 + 2 * core.rows):
            assert not ctx.get(dut.read.valid), "a read after the end"
            assert not ctx.get(dut.w_valid), "a column after the end"
            self.done += ctx.get(dut.done)
            await ctx.tick()
        assert ctx.get(dut.quiet) and not ctx.get(dut.holds)
        assert self.done == len(self.commands)

    def check_column(self, ctx, cycle, used_at):
        dut = self.dut
        loaded = ctx.get(dut.tile_loaded)
        if not ctx.get(dut.w_valid):
            assert not loaded
            return
        place = f"tile {self.loaded}, column {self.column}"
        assert self.loaded < len(self.tiles), f"{place}: a tile too many"
        expected = self.tiles[self.loaded][0][self.column]
        actual = ctx.get(dut.w_data)
        assert actual == expected, f"{place}: {actual:#x}, expected {expected:#x}"
        assert ctx.get(dut.w_column) == self.column, place
        assert ctx.get(dut.w_bank) == self.loaded % 2, place
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


def random_command(rng, core):
    rows = core.rows
    blocks = rng.randint(1, 3)
    command = command_of(
        address=rng.choice([0, 5, 1000, 0x7FFFFE, 0x800000, 0xFFFFFE]),
        transpose=rng.randrange(2),
        block_count=blocks,
        skip=rng.choice([0, 0, rng.randrange(rows), rng.randrange(blocks * rows + 2)]),
        row_stride=rng.choice([0, 1, 7, -3]),
        row_limit=rng.choice([0xFFFF, 1, rng.randrange(3 * rows)]),
        bias=rng.randrange(2),
        bias_address=rng.choice([40, 0xFFFFFF]),
    )
    for loop, most in (("kw", 3), ("kh", 2), ("cb", 3)):
        command[f"{loop}_count"] = rng.randint(1, most)
        command[f"{loop}_stride"] = rng.randint(-20, 20)
    return command


SLOW = [{}, {"read": 0.4}, {"use": 0.05}, {"free": 0.05}, {"send": 0.02}]


@pytest.mark.parametrize("chances", SLOW, ids=["fast", "read", "use", "free", "send"])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 5), (1, 1), (2, 1), (1, 2), (12, 15)])
def test_random_commands(rows, columns, chances, seed):
    core = core_of(rows, columns)
    rng = random.Random(f"{seed} {rows} {columns} {chances}")
    bench = Bench(core, [random_command(rng, core) for _ in range(12)], seed, **chances)
    bench.run()
    assert bench.used == bench.loaded == len(bench.tiles)
    assert bench.read == len(bench.addresses)


@pytest.mark.parametrize(
    ("rows", "columns", "fields", "interval"),
    [
        (4, 6, {"transpose": 0}, 6),
        (4, 6, {"block_count": 2}, 8),
        (4, 6, {"block_count": 3, "skip": 3}, 12),
        (4, 6, {"block_count": 1, "skip": 1}, 7),
        (12, 15, {"block_count": 2, "skip": 9}, 24),
    ],
)
def test_throughput(rows, columns, fields, interval, seed):
    """A word in every cycle, and a column for each that blocks do not reach.

    But no tile before the one ahead of it is in use, which it is after its last column.
    """
    core = core_of(rows, columns)
    command = command_of(address=8, kw_count=3, kh_count=3, kw_stride=1, **fields)
    bench = Bench(core, [command], seed)
    bench.run()
    loaded = bench.columns_at[columns - 1 :: columns]
    assert len(loaded) == 9
    # The last tile may leave the transposer without others behind it.
    assert [b - a for a, b in itertools.pairwise(loaded[:-1])] == [max(interval, columns + 3)] * 7


def test_one_tile_ahead_and_no_further(seed):
    """With tiles that nobody uses, one is loaded and one block waits in the transposer."""
    core = core_of(4, 4)
    dut = WeightLoader(core)
    reads = []

    async def testbench(ctx):
        ctx.set(dut.read.ready, 1)
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.command.payload, command_of(kw_count=9, kw_stride=4))
        for tiles in range(1, 4):
            for _ in range(40):
                if ctx.get(dut.read.valid):
                    reads.append(ctx.get(dut.read.address))
                await ctx.tick()
            assert reads == list(range((tiles + 1) * core.rows))
            assert ctx.get(dut.holds) and ctx.get(dut.quiet)
            ctx.set(dut.tile_used, 1)
            await ctx.tick()
            ctx.set(dut.tile_used, 0)
            assert not ctx.get(dut.quiet)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


@pytest.mark.parametrize("transpose", [0, 1])
def test_the_last_tile_comes_without_a_command_behind_it(transpose, seed):
    bench = Bench(core_of(4, 4), [command_of(transpose=transpose)], seed)
    bench.run(limit=25)


def test_biases_wait_for_their_release(seed):
    """The biases of the next command are not read before those of this one are released."""
    core = core_of(4, 4)
    dut = WeightLoader(core)

    async def testbench(ctx):
        ctx.set(dut.read.ready, 1)
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.command.payload, command_of(bias=1))
        ctx.set(dut.tile_used, 1)  # the weights are never in the way
        count = 0
        for round_ in range(1, 4):
            for _ in range(60):
                count += ctx.get(dut.read.valid)
                await ctx.tick()
            assert count == round_ * (core.bias_words + core.rows)
            assert ctx.get(dut.quiet) and ctx.get(dut.holds)
            ctx.set(dut.bias_used, 1)
            await ctx.tick()
            ctx.set(dut.bias_used, 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


def test_the_bench_finds_a_wrong_order(seed):
    bench = Bench(core_of(4, 4), [command_of(bias=1, kw_count=2)], seed)
    bench.addresses[4], bench.addresses[5] = bench.addresses[5], bench.addresses[4]
    with pytest.raises(AssertionError, match=r"read \d: 0x., not 0x."):
        bench.run()


def test_the_bench_finds_a_wrong_column(seed):
    bench = Bench(core_of(4, 4), [command_of(kw_count=2)], seed)
    bench.tiles[1][0][2] ^= 1
    with pytest.raises(AssertionError, match="tile 1, column 2: 0x"):
        bench.run()
