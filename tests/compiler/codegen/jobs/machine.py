"""Jobs on one memory, and what their commands do."""

from functools import partial

from compiler.codegen.attempts import write_program
from compiler.codegen.cost import executed
from compiler.codegen.dependencies import Region
from compiler.codegen.jobs.job import Job, Need
from compiler.codegen.jobs.job_runner import JobRunner
from compiler.codegen.scratchpad import Scratch
from hw.config import make_config
from hw.isa.encoding import Opcode
from hw.isa.loops import LoopCounters
from tests.compiler.codegen.orders import execute, violations

CONFIG = make_config(variant="baseline", preset="tiny", buffer_banks=2, buffer_bank_depth=64)


class Machine:
    """Jobs on one memory; what their commands touch is in their fields."""

    def __init__(self, recorder):
        self.recorder, self.scratch = recorder, Scratch(CONFIG)
        self.runner = JobRunner([self.scratch], recorder)

    def emit(self, opcode, reads, writes, **fields):
        """A command; regions in the buffer are fields, too."""
        buffer = [tuple((r.begin, r.end) for r in part if r.memory != "dram")
                  for part in (reads, writes)]  # fmt: skip
        fields |= {"reads": buffer[0], "writes": buffer[1]}
        self.recorder.emit(opcode, fields, reads=reads, writes=writes)

    def load(self, address, words, block):
        self._move(Opcode.LOAD, address, words, block)

    def store(self, address, words, block):
        self._move(Opcode.STORE, address, words, block)

    def _move(self, opcode, address, words, block):
        sides = [[Region("dram", address, address + words)], [block.region()]]
        reads, writes = sides if opcode is Opcode.LOAD else sides[::-1]
        fields = {"buffer_address": block.address, "dram_address": address, "run_bytes": words,
                  "row_bytes": words}  # fmt: skip
        self.emit(opcode, reads, writes, **fields)

    def need(self, address, words):
        return Need((address, words), words, partial(self.load, address, words))

    def layer(self, x, y, count, *, tiles=1, weights=None, size=5, move=None, like=True):
        """``y[i] = f(x[i], weights)`` for ``count`` items of ``size`` words, in ``tiles`` jobs."""
        jobs = []
        for item in range(count):
            out = Need(object(), size)
            for tile in range(tiles):
                place = x + (item * size if move is None else move(item))
                needs = [out, self.need(place, size)]
                if weights is not None:
                    needs.append(self.need(weights + 7 * tile, 7))
                run = partial(self._tile, y + item * size, size, tile, tile == tiles - 1)
                jobs.append(Job(tuple(needs), run, like=tile if like else None, at=(item,)))
        self.runner.run(jobs)

    def table(self, x, y, rows, columns, *, size=3, gap=2):
        """``y[i, j] = f(x[i, j], weights of the row)``: rows have ``gap`` words behind them."""
        jobs, pitch = [], columns * size + gap
        for i in range(rows):
            for j in range(columns):
                place = i * pitch + j * size
                needs = (Need(object(), size), self.need(x + place, size),
                         self.need(900 + 4 * i, 4))  # fmt: skip
                run = partial(self._tile, y + place, size, 0, True)
                jobs.append(Job(needs, run, like=j == 0, at=(i, j)))
        self.runner.run(jobs)

    def _tile(self, address, size, tile, last, out, *inputs):
        parts = [*inputs, out] if tile else inputs
        self.emit(Opcode.VECTOR, [b.region() for b in parts], [out.region()])
        if last:
            self.store(address, size, out)
            self.scratch.drop([out])


def expanded(commands):
    """The commands one by one, with their addresses in DRAM, and what they touch."""
    counters, result, found = LoopCounters(), [], []
    for command in executed(commands):
        if command.opcode is Opcode.REPEAT:
            counters.repeat(command.fields)
            continue
        found.append(command)
        if command.opcode is Opcode.HALT:
            continue
        fields = command.fields
        reads, writes = (
            [Region("buffer", *part) for part in fields[name]] for name in ("reads", "writes")
        )
        if command.opcode is not Opcode.VECTOR:
            address = counters.address(fields)
            region = Region("dram", address, address + fields["run_bytes"])
            (reads if command.opcode is Opcode.LOAD else writes).append(region)
        result.append((command.opcode, reads, writes))
    return found, result


def effect(commands):
    """DRAM after ``commands``, one by one: address -> what was computed."""
    dram, buffer = {}, {}
    for opcode, reads, writes in commands:
        if opcode is Opcode.VECTOR:
            values = tuple(
                buffer.get(place) for part in reads for place in range(part.begin, part.end)
            )
            for part in writes:
                for place in range(part.begin, part.end):
                    buffer[place] = hash((place - part.begin, values))
            continue
        source, target = (dram, buffer) if opcode is Opcode.LOAD else (buffer, dram)
        for part, other in zip(reads, writes, strict=True):
            for number in range(part.end - part.begin):
                old = part.begin + number
                target[other.begin + number] = source.get(old, ("dram", old))
    return dram


def write(layers, loops=True):
    """Linked commands of ``layers``, functions of a :class:`Machine`."""

    def emit(recorder):
        machine = Machine(recorder)
        for layer in layers:
            layer(machine)
        return recorder.link()

    return write_program(CONFIG, emit, loops=bool(loops))


def check(layers, rng, *, loops, orders=3):
    """The program has so many loops, does what it does written out, and keeps every order that
    matters."""
    commands = write(layers)
    assert sum(command.opcode is Opcode.REPEAT for command in commands) == loops
    found, touched = expanded(commands)
    plain, wanted = expanded(write(layers, loops=False))
    # In other places blocks may stay for a longer or a shorter time.
    assert _work(found) == _work(plain)
    assert effect(touched) == effect(wanted)
    for _ in range(orders):
        assert not violations(touched, execute(found, rng, CONFIG.command_queue_depth))
    return commands


def _work(commands):
    return [command.opcode for command in commands if command.opcode is not Opcode.LOAD]
