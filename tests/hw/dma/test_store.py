"""StoreEngine alone, in Amaranth's simulator: bytes, bursts, errors, resets; its bus is a list.

tests/hw/dma/test_dma.py has it on a whole AXI4 bus.
"""

import random

import pytest
from amaranth.sim import Simulator

from emulator.transfers import transfer_rows
from hw.bus.signatures import (
    BUFFER_READ_LATENCY,
    RESP_DECERR,
    RESP_EXOKAY,
    RESP_OKAY,
    RESP_SLVERR,
)
from hw.config import BUFFER_ADDRESS_WIDTH, make_config
from hw.dma.store import WORD_QUEUE_DEPTH, StoreEngine, WordReader
from hw.isa.error_codes import ErrorCode
from tests.hw.dma.engine_bench import EngineBench
from tests.hw.dma.test_burst import CONFIGS, EACH, command_of

BASE, SIZE = 0x5000, 1 << 16
#: The first word of the second memory.
SECOND = 1 << (BUFFER_ADDRESS_WIDTH - 1)


def word_at(address, size):
    """What the buffer holds: words of which no two are alike."""
    return random.Random(address).randbytes(size)


class Bench(EngineBench):
    """A StoreEngine, its commands, a buffer and a bus.

    Chances per cycle: ``accept`` a burst or a beat is accepted, ``read`` a word is read, ``answer``
    a response comes. ``answers``: number of a burst -> its response; ``bursts`` (address, beats),
    ``stored`` bytes by address, ``reads`` addresses, ``errors`` (code, address).
    """

    def __init__(self, shape, seed, config=None, **chances):
        chances = {"accept": 1.0, "read": 1.0, "answer": 1.0} | chances
        super().__init__(StoreEngine, shape, seed, chances, config)

    async def begin(self, base=BASE, size=SIZE):
        """A reset, in whose cycle a command is offered, which is not to be executed."""
        ctx, dut = self.ctx, self.dut
        ctx.set(self.clear, 1)
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.command.payload, usual(self))
        await ctx.tick()
        ctx.set(dut.command.valid, 0)
        ctx.set(self.clear, 0)
        ctx.set(dut.memory_base, base)
        ctx.set(dut.memory_size, size)
        self.commands, self.sent, self.done, self.owed = [], 0, 0, 0
        self.bursts, self.open, self.stored, self.reads, self.errors = [], [], {}, [], []
        self.answers, self.answered, self.offer = {}, 0, None
        self.words = [None] * BUFFER_READ_LATENCY

    async def step(self):
        ctx, dut, rng = self.ctx, self.dut, self.rng
        offers = self.sent < len(self.commands)
        ctx.set(dut.command.valid, offers)
        noise = command_of(run_bytes=1, row_bytes=3)
        ctx.set(dut.command.payload, self.commands[self.sent] if offers else noise)
        accepts, takes, reads = self.chance("accept"), self.chance("accept"), self.chance("read")
        ctx.set(dut.write.request.ready, accepts)
        ctx.set(dut.write.data.ready, takes)
        ctx.set(dut.read.ready, reads)
        # A word is there in its one cycle; noise in all others.
        word = self.words.pop(0)
        noise = rng.randbytes(self.word) if word is None else word_at(word, self.word)
        ctx.set(dut.read.data, int.from_bytes(noise, "little"))
        answers = self.owed > 0 and self.chance("answer")
        ctx.set(dut.write.response.valid, answers)
        resp = self.answers.get(self.answered, RESP_OKAY) if answers else rng.getrandbits(2)
        ctx.set(dut.write.response.payload, resp)

        asked = ctx.get(dut.read.valid) and reads
        self.words.append(ctx.get(dut.read.address) if asked else None)
        if asked:
            self.reads.append(ctx.get(dut.read.address))
        if answers and ctx.get(dut.write.response.ready):
            self.owed, self.answered = self.owed - 1, self.answered + 1
        if ctx.get(dut.write.request.valid) and accepts:
            burst = ctx.get(dut.write.request.payload)
            self.bursts.append((burst.address, burst.length + 1))
            self.open.append([burst.address, burst.length + 1])
        offer = None
        if ctx.get(dut.write.data.valid):
            beat = ctx.get(dut.write.data.payload)
            lanes = [beat.data >> 8 * n & 0xFF for n in range(self.width) if beat.strb >> n & 1]
            offer = beat.strb, beat.last, lanes
        assert self.offer in (None, offer), "a beat that is not taken stays"
        self.offer = None if takes else offer
        beat = bool(ctx.get(dut.write.data.valid) and takes)
        assert ctx.get(dut.beat) == beat
        if beat:
            self.take(ctx.get(dut.write.data.payload))
        self.done += ctx.get(dut.done)
        if ctx.get(dut.error.valid):
            self.errors.append((ctx.get(dut.error.code), ctx.get(dut.error.address)))
        self.sent += bool(offers and ctx.get(dut.command.ready))
        await ctx.tick()

    def take(self, beat):
        """A beat of the oldest burst."""
        burst = self.open[0]
        burst[1] -= 1
        assert beat.last == (burst[1] == 0), f"burst at {burst[0]:#x}: {burst[1]} beats are left"
        for lane in range(self.width):
            if beat.strb >> lane & 1:
                assert burst[0] + lane not in self.stored, f"byte {burst[0] + lane:#x} comes twice"
                self.stored[burst[0] + lane] = beat.data >> 8 * lane & 0xFF
        burst[0] += self.width
        if beat.last:
            self.open.pop(0)
            self.owed += 1

    async def until(self, condition, limit=3000):
        for _ in range(limit):
            if condition():
                return
            await self.step()
        raise AssertionError(f"nothing in {limit} cycles: {self.commands}, {len(self.stored)}")

    def expected(self, *commands):
        """Bytes by address."""
        found = {}
        for command in commands:
            offsets, words = transfer_rows(command, self.word)
            for row, place in zip(offsets, words, strict=True):
                data = b"".join(word_at(int(word), self.word) for word in place)
                found |= {BASE + int(o): data[i] for i, o in enumerate(row)}
        return found

    def compare(self, *commands):
        expected = self.expected(*commands)
        assert self.stored.keys() == expected.keys()
        wrong = [place for place, value in expected.items() if self.stored[place] != value]
        assert not wrong, f"byte {wrong[0]:#x} is {self.stored[wrong[0]]:#x}; {len(wrong)} are"


def usual(bench, **changes):
    """Three rows of a word and a granule in two runs."""
    granule = bench.config.granule_bytes
    row = bench.word + granule if bench.word > granule else granule
    return command_of(**{
        "buffer_address": 5, "dram_address": 3 * granule, "run_bytes": 3 * row, "run_count": 2,
        "run_stride": 3 * row + granule, "row_bytes": row, **changes,
    })  # fmt: skip


@EACH
@pytest.mark.parametrize("chance", [1.0, 0.4])
def test_bytes_from_both_memories(shape, chance, seed):
    async def process(bench):
        for address in (5, SECOND + 9):
            await bench.begin()
            bench.commands = [usual(bench, buffer_address=address)]
            await bench.until(lambda: bench.done == 1)
            bench.compare(*bench.commands)
            assert not bench.errors and bench.reads[0] == address

    Bench(shape, seed, accept=chance, read=chance, answer=chance).simulate(process)


def test_beats_of_two_granules(seed):
    """Runs that begin in either of them."""

    async def process(bench):
        granule = bench.config.granule_bytes
        assert bench.width == 2 * granule
        bench.commands = [usual(bench, dram_address=place * granule) for place in (0, 65)]
        await bench.until(lambda: bench.done == 2)
        bench.compare(*bench.commands)

    config = make_config(variant="baseline", preset="tiny", axi_data_width=128)
    Bench("two granules", seed, config, accept=0.6, read=0.6).simulate(process)


def test_words_wait_in_the_queue(seed):
    """As many as it holds are read ahead, no more."""
    config = CONFIGS[8, 32, 64, 16]
    dut = WordReader(config, config.cores[0])

    async def testbench(ctx):
        row = config.cores[0].word_bytes
        ctx.set(dut.i.payload, command_of(run_bytes=99 * row, row_bytes=row))
        ctx.set(dut.i.valid, 1)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.read.ready, 1)
        reads = 0
        for _ in range(4 * WORD_QUEUE_DEPTH):
            reads += ctx.get(dut.read.valid)
            await ctx.tick()
        assert reads == WORD_QUEUE_DEPTH

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


@EACH
def test_stop_at_any_time(shape, seed):
    """Of what is not on offer no byte is stored; bursts that were requested get their beats."""

    async def process(bench):
        ctx, dut = bench.ctx, bench.dut
        row = 4 * bench.word
        for moment in range(8, 40, 5):
            await bench.begin()
            bench.commands = [command_of(run_bytes=16 * row, row_bytes=row)]
            for _ in range(moment):
                await bench.step()
            ctx.set(dut.stop, 1)
            await bench.step()
            ctx.set(dut.stop, 0)
            before = len(bench.stored)
            await bench.until(lambda: not ctx.get(dut.busy) and not bench.open)
            assert len(bench.stored) - before in (0, bench.width), f"stop in cycle {moment}"
            assert not bench.errors and not bench.done

    for chance in (1.0, 0.5):
        Bench(shape, seed, accept=chance).simulate(process)


@EACH
def test_reset_in_the_cycle_of_a_bad_response(shape, seed):
    """Nothing is reported behind it."""

    async def process(bench):
        bench.answers = {0: RESP_SLVERR}
        bench.commands = [usual(bench)]
        await bench.until(lambda: bench.owed)
        bench.ctx.set(bench.clear, 1)
        await bench.step()
        bench.ctx.set(bench.clear, 0)
        assert bench.answered == 1
        bench.commands = []
        for _ in range(3):
            await bench.step()
        assert not bench.errors and not bench.ctx.get(bench.dut.busy)

    Bench(shape, seed).simulate(process)


def test_long_bursts(seed):
    """More than 128 beats in one."""

    async def process(bench):
        length = 200 * bench.width
        row = bench.word
        bench.commands = [command_of(run_bytes=length, row_bytes=row)]
        await bench.until(lambda: bench.done == 1)
        bench.compare(*bench.commands)
        assert max(beats for _, beats in bench.bursts) == 200

    Bench((8, 8, 40, 256), seed).simulate(process)


@EACH
@pytest.mark.parametrize(
    ("response", "code"),
    [
        (RESP_SLVERR, ErrorCode.WRITE_SLVERR),
        (RESP_EXOKAY, ErrorCode.WRITE_SLVERR),
        (RESP_DECERR, ErrorCode.WRITE_DECERR),
    ],
)
def test_a_bad_response_names_its_burst(shape, response, code, seed):
    """In the upper half of the address space, too."""
    top = 1 << CONFIGS[shape].axi_address_width

    async def process(bench):
        for base in (BASE, top - SIZE):
            await bench.begin(base=base)
            bench.answers = {1: response}
            bench.commands = [usual(bench), usual(bench, dram_address=0x800)]
            await bench.until(lambda: bench.errors)
            assert bench.errors == [(code, bench.bursts[1][0])]
            assert bench.bursts[1][0] >= base
            await bench.until(lambda: not bench.ctx.get(bench.dut.busy))

    Bench(shape, seed).simulate(process)


@EACH
def test_reset_in_every_cycle(shape, seed):
    """Nothing of the old command is left: no word is read, no burst begun; the next is right."""

    async def process(bench):
        for cycles in range(40):
            await bench.begin()
            bench.commands = [usual(bench)]
            for _ in range(cycles):
                await bench.step()
            await bench.begin()
            for _ in range(6):
                await bench.step()
            assert not bench.reads and not bench.bursts, f"reset behind {cycles} cycles"
            assert not bench.ctx.get(bench.dut.busy)
            bench.commands = [usual(bench, buffer_address=77)]
            await bench.until(lambda: bench.done == 1)
            bench.compare(*bench.commands)

    Bench(shape, seed).simulate(process)


@EACH
def test_the_longest_commands_go_on(shape, seed):
    """Runs of 2 GiB and 32769 runs, whose end no simulation sees, are not mistaken for few."""

    async def process(bench):
        row = 2 * bench.word
        for fields in ({"run_bytes": (1 << 31) + row}, {"run_bytes": row, "run_count": 32769}):
            await bench.begin(base=0, size=1 << 32)
            bench.commands = [command_of(run_stride=row, row_bytes=row, **fields)]
            await bench.until(lambda: len(bench.reads) == 16)
            assert not bench.errors and bench.ctx.get(bench.dut.busy)

    Bench(shape, seed).simulate(process)
