"""LoadEngine alone, in Amaranth's simulator: words, errors, stops, resets; its bus is a list.

tests/hw/dma/test_dma.py has it on a whole AXI4 bus.
"""

import random

import pytest

from emulator.transfers import transfer_rows
from hw.bus.signatures import RESP_DECERR, RESP_EXOKAY, RESP_OKAY, RESP_SLVERR
from hw.dma.load import LoadEngine
from hw.isa.error_codes import ErrorCode
from tests.hw.dma.engine_bench import EngineBench
from tests.hw.dma.test_burst import CONFIGS, EACH, command_of

#: Without bursts of 256 beats, which are dropped for long.
SHORT = pytest.mark.parametrize("shape", [s for s in CONFIGS if s[-1] < 256], ids=str)
#: The memory window of most tests.
BASE, SIZE = 0x5000, 1 << 16
PERIOD = 4093
MEMORY = random.Random(7).randbytes(PERIOD)


def bytes_at(address, count):
    """What the memory holds; no two places of a test that are a power of two apart are alike."""
    place = address % PERIOD
    return (MEMORY[place:] + MEMORY)[:count]


class Bench(EngineBench):
    """A LoadEngine, its commands, a memory and a buffer.

    Chances per cycle: ``accept`` a burst is accepted, ``beat`` a beat comes, ``write`` a word is
    taken. ``answers``: number of a beat -> its response; ``requested`` are bursts, ``owed`` beats
    that are to come, ``beats`` those that came, ``burst_of`` the burst of each, ``written`` words,
    ``errors`` (code, address).
    """

    def __init__(self, shape, seed, **chances):
        super().__init__(
            LoadEngine, shape, seed, {"accept": 1.0, "beat": 1.0, "write": 1.0} | chances
        )

    def forget(self, base=BASE, size=SIZE):
        self.commands, self.sent, self.done = [], 0, 0
        self.requested, self.owed, self.beats, self.written, self.errors = [], [], 0, [], []
        self.answers, self.burst_of, self.cycle, self.log = {}, [], 0, []
        self.base, self.running = base, False
        self.ctx.set(self.dut.memory_base, base)
        self.ctx.set(self.dut.memory_size, size)

    async def begin(self, **window):
        """A reset, in whose cycle everything else goes on."""
        self.ctx.set(self.clear, 1)
        if hasattr(self, "commands"):
            await self.step()
        else:
            await self.ctx.tick()
        self.ctx.set(self.clear, 0)
        self.ctx.set(self.dut.stop, 0)
        self.forget(**window)
        assert not self.ctx.get(self.dut.busy)

    async def step(self):
        ctx, dut, rng = self.ctx, self.dut, self.rng
        offers = self.sent < len(self.commands)
        ctx.set(dut.command.valid, offers)
        noise = command_of(run_bytes=1, row_bytes=3)
        ctx.set(dut.command.payload, self.commands[self.sent] if offers else noise)
        accept = self.chance("accept")
        ctx.set(dut.read.request.ready, accept)
        comes = bool(self.owed) and self.chance("beat")
        ctx.set(dut.read.data.valid, comes)
        address, last, burst = self.owed[0] if comes else (0, rng.getrandbits(1), 0)
        resp = self.answers.get(self.beats, RESP_OKAY) if comes else rng.getrandbits(2)
        data = bytes_at(address, self.width)
        beat = {"data": int.from_bytes(data, "little"), "resp": resp, "last": last}
        ctx.set(dut.read.data.payload, beat)
        takes = self.chance("write")
        ctx.set(dut.write.ready, takes)

        if self.owed or (self.running and self.sent > self.done):
            assert ctx.get(dut.busy), "beats are owed, or words"
        beat = comes and ctx.get(dut.read.data.ready)
        assert ctx.get(dut.beat) == beat
        if beat:
            self.owed.pop(0)
            self.beats += 1
            self.burst_of.append(burst)
            self.log.append(("beat", self.cycle))
        if ctx.get(dut.read.request.valid):
            burst = ctx.get(dut.read.request.payload)
            if accept:
                assert burst.address % self.width == 0
                self.requested.append(burst.address)
                self.log.append(("request", self.cycle))
                self.owed += [
                    (burst.address + n * self.width, n == burst.length, burst.address)
                    for n in range(burst.length + 1)
                ]
            most = self.config.axi_outstanding_reads
            assert sum(last for _, last, _ in self.owed) <= most
        if ctx.get(dut.write.valid) and takes:
            word = ctx.get(dut.write.data).to_bytes(self.word, "little")
            self.written.append((ctx.get(dut.write.address), word))
            self.log.append(("word", self.cycle))
            assert ctx.get(dut.write.enable) == (1 << self.core.groups_per_word) - 1
        if ctx.get(dut.done):
            self.done += 1
            self.log.append(("done", self.cycle))
        if ctx.get(dut.error.valid):
            self.errors.append((ctx.get(dut.error.code), ctx.get(dut.error.address)))
        if offers and ctx.get(dut.command.ready):
            self.sent += 1
            self.log.append(("command", self.cycle))
        await ctx.tick()
        self.cycle += 1

    def at(self, what):
        """The cycles in which that happened."""
        return [cycle for name, cycle in self.log if name == what]

    async def until(self, condition, limit=2500):
        for _ in range(limit):
            if condition():
                return
            await self.step()
        raise AssertionError(f"nothing in {limit} cycles: {self.commands}, {len(self.written)}")

    def words_of(self, command):
        """(address, bytes) of the words that the command writes, in order."""
        result = []
        for row, words in zip(*transfer_rows(command, self.word), strict=True):
            line = bytes_at(self.base + int(row[0]), len(row))
            for part, address in enumerate(words):
                word = line[part * self.word :][: self.word].ljust(self.word, b"\0")
                result.append((int(address), word))
        return result

    async def run(self, commands):
        """Commands to their end, all of whose words are checked."""
        ctx, before = self.ctx, len(self.written)
        self.commands += commands
        wanted = [word for command in commands for word in self.words_of(command)]
        self.running = True
        await self.until(lambda: self.done == len(self.commands))
        self.running = False
        assert self.written[before:] == wanted, commands
        for _ in range(2):
            assert not ctx.get(self.dut.busy)
            await self.step()
        assert self.errors == [] and self.done == len(self.commands)

    async def fails(self, error):
        """The run ends with that error and no other; what is owed is dropped, then it is quiet."""
        await self.until(lambda: self.errors)
        await self.quiet()
        assert self.errors == [error], self.commands

    async def quiet(self):
        """Nothing is requested any more; ``busy`` falls with the last beat."""
        ctx, dut = self.ctx, self.dut
        before = len(self.requested)
        await self.until(lambda: not self.owed and not ctx.get(dut.read.request.valid))
        for _ in range(12):
            assert not ctx.get(dut.busy)
            await self.step()
        # A burst that is on offer, or waits for room, is still requested.
        assert len(self.requested) - before <= 1 and not self.owed

    def random_command(self, words=16):
        granule, rng = self.config.granule_bytes, self.rng
        row = rng.choice([1, rng.randint(1, 9), rng.randint(1, 2 * self.word // granule)])
        rows, runs = rng.randint(1, max(1, words // row)), rng.randint(1, 3)
        return command_of(
            buffer_address=rng.getrandbits(24), dram_address=granule * rng.randrange(999),
            run_bytes=granule * row * rows, run_count=runs, row_bytes=granule * row,
            run_stride=granule * rng.randint(0, 99),
        )  # fmt: skip


#: As fast as can be, a slow memory, a slow buffer.
PACES = ({}, {"accept": 0.3, "beat": 0.4}, {"write": 0.4})


@EACH
def test_random_commands(shape, seed):
    bench = Bench(shape, seed)

    async def process(bench):
        fast = bench.chances
        for pace in PACES:
            bench.chances = fast | pace
            commands = [bench.random_command() for _ in range(4)]
            for command in commands:  # within 24 bits
                command["buffer_address"] %= (1 << 24) - 300
            await bench.run(commands)
        # As many commands as there can be, each of a word, and the longest burst.
        granule = bench.config.granule_bytes
        await bench.run([command_of(run_bytes=granule, row_bytes=granule)] * 8)
        length = bench.width << bench.config.axi_burst_beats.bit_length() - 1
        bench.chances = fast
        await bench.run([command_of(run_bytes=length, row_bytes=granule)])

    bench.simulate(process)


@EACH
def test_latency_and_throughput(shape, seed):
    """As the class says: 4 cycles to the first request, 2 from a beat to its word, the slower of
    beats and words sets the pace."""
    bench = Bench(shape, seed)
    beats = bench.config.beat_bytes * 6
    length = beats * bench.word // bench.config.granule_bytes

    async def process(bench):
        command = command_of(run_bytes=length, row_bytes=length)
        await bench.run([command] * 2)
        assert bench.at("request")[0] - bench.at("command")[0] == 4
        count = length // bench.word
        moved = max(length // bench.config.beat_bytes, count)
        first, last = bench.at("word")[0], bench.at("word")[count - 1]
        assert last - first <= moved + 1
        number = length // bench.width
        # Of the words that the last beat completes, one leaves per cycle.
        late = count - (length - bench.width) // bench.word
        assert bench.at("beat")[number] - bench.at("beat")[number - 1] <= 4 + late
        assert 2 <= bench.at("word")[-1] - bench.at("beat")[-1] <= 2 + late
        assert bench.at("done")[0] - bench.at("word")[count - 1] == 1

    bench.simulate(process)


@SHORT
def test_refused_reads(shape, seed):
    """In any beat; the words in front of it are written, later answers are no errors."""
    bench = Bench(shape, seed, beat=0.6, write=0.7)
    length = bench.config.granule_bytes * 80
    row = bench.config.granule_bytes * 4

    async def process(bench):
        command = command_of(run_bytes=length, row_bytes=row, run_count=2, run_stride=length)
        base = (1 << bench.config.axi_address_width) - (1 << 16)
        answers = (RESP_EXOKAY, RESP_SLVERR, RESP_DECERR)
        for number, answer in ((0, answers[0]), *((place, a) for a in answers for place in (1, 6))):
            code = ErrorCode.READ_DECERR if answer == RESP_DECERR else ErrorCode.READ_SLVERR
            await bench.begin(base=base)
            bench.commands = [command]
            bench.answers = {number: answer, number + 2: RESP_DECERR, number + 3: RESP_SLVERR}
            await bench.until(lambda number=number: bench.beats > number)
            await bench.fails((code, bench.burst_of[number]))
            wanted = bench.words_of(command)
            assert bench.written == wanted[: len(bench.written)] and bench.done == 0
            bench.answers = {}
            await bench.begin()
            await bench.run([bench.random_command() | {"buffer_address": 5}])

    bench.simulate(process)


@EACH
def test_refused_commands(shape, seed):
    """What the planner finds, and a run that ends inside a row."""
    bench = Bench(shape, seed)
    granule = bench.config.granule_bytes
    usual = command_of(run_bytes=granule * 24, row_bytes=granule * 4, buffer_address=0xABCDE0)
    bad = [
        ({"run_bytes": 0}, (ErrorCode.ILLEGAL_FIELD, BASE + 0x400)),
        ({"row_bytes": 0}, (ErrorCode.ILLEGAL_FIELD, BASE + 0x400)),
        ({"dram_address": SIZE}, (ErrorCode.MEMORY_WINDOW, BASE + SIZE)),
        ({"dram_address": (1 << 32) - 64}, (ErrorCode.MEMORY_WINDOW, BASE + (1 << 32) - 64)),
    ]
    if granule > 1:
        bad.append(({"run_stride": 1}, (ErrorCode.UNALIGNED_ADDRESS, BASE + 0x400)))
    if bench.word > granule:
        # Of the sixth row some granules, which may be a word, and then nothing.
        rows, place = bench.word // granule, 0xABCDE0 + 5 * -(-granule * 4 // bench.word)
        for left in (1, 3):
            error = ErrorCode.ILLEGAL_FIELD, place + left // rows
            bad.append(({"run_bytes": granule * (20 + left)}, error))
        bad.append(({"row_bytes": granule * 4 + (1 << 31)}, None))

    async def process(bench):
        top = 1 << bench.config.axi_address_width
        for fields, error in bad:
            await bench.begin()
            command = usual | {"dram_address": 0x400} | fields
            bench.commands = [usual, command, usual]
            await bench.until(lambda: bench.errors)
            if error is None:
                error = (ErrorCode.ILLEGAL_FIELD, bench.errors[0][1])
            await bench.fails((error[0], error[1] % top))
            assert bench.done <= 1
        await bench.begin()
        await bench.run([usual])
        # The highest window.
        await bench.begin(base=top - 0x1000, size=1 << 32)
        await bench.run([usual])

    bench.simulate(process)


@SHORT
def test_stop_at_any_time(shape, seed):
    """A burst on offer is still requested, nothing else; beats are dropped, words may miss."""
    bench = Bench(shape, seed, accept=0.5, beat=0.6, write=0.6)
    length = bench.config.granule_bytes * 80

    async def process(bench):
        for moment in range(2, 40, 11):
            await bench.begin()
            command = command_of(run_bytes=length, row_bytes=length)
            bench.commands = [command] * 3
            for _ in range(moment):
                await bench.step()
            bench.ctx.set(bench.dut.stop, 1)
            await bench.step()
            bench.ctx.set(bench.dut.stop, moment % 2)
            await bench.quiet()
            assert bench.errors == []
            wanted = 3 * bench.words_of(command)
            assert bench.written == wanted[: len(bench.written)]
            bench.commands = []
            await bench.begin()
            await bench.run([bench.random_command() | {"buffer_address": 5}])

    bench.simulate(process)


@EACH
def test_reset_at_any_time(shape, seed):
    """Nothing is left of commands, bursts, words, errors and stops."""
    bench = Bench(shape, seed, accept=0.7, beat=0.7, write=0.5)
    granule = bench.config.granule_bytes

    async def process(bench):
        for moment in range(1, 40, 4):
            bench.commands = [bench.random_command(words=12) for _ in range(3)]
            if moment % 2:
                bench.answers = {2 + moment // 6: RESP_SLVERR}
            if moment % 5 == 0:
                bench.commands[1] = command_of(run_bytes=granule * 3, row_bytes=granule * 2)
            for _ in range(moment):
                await bench.step()
            await bench.begin()
            for _ in range(3):
                await bench.step()
                assert not bench.ctx.get(bench.dut.busy)
            assert bench.requested == bench.written == bench.errors == [] and not bench.done
            await bench.run([bench.random_command(words=6) | {"buffer_address": moment}] * 2)

    bench.simulate(process)


@EACH
def test_reset_in_the_cycle_of_an_event(shape, seed):
    """A first beat, a refused one, a last word: a reset in this very cycle leaves nothing of it."""
    bench = Bench(shape, seed)
    granule = bench.config.granule_bytes
    command = command_of(run_bytes=granule * 48, row_bytes=granule * 4)
    # Behind the reset a run that begins inside a beat, where there is such a place.
    after = command_of(dram_address=bench.width - granule, run_bytes=granule * 8, row_bytes=granule)

    async def process(bench):
        for event, answers in (("beat", {}), ("beat", {0: RESP_SLVERR}), ("word", {})):
            await bench.begin()
            bench.commands, bench.answers = [command], answers
            await bench.until(lambda: bench.done or bench.errors)
            moment = bench.at(event)[-1 if event == "word" else 0]
            await bench.begin()
            bench.commands, bench.answers = [command], answers
            for _ in range(moment):
                await bench.step()
            await bench.begin()
            await bench.run([after])

    bench.simulate(process)
