"""Jobs that come again become loops, and do what they do written out.

Covers: compiler/codegen/linking/loops.py, compiler/codegen/jobs/running_loop.py,
compiler/codegen/linking/tokens.py, compiler/codegen/linking/linker.py,
compiler/codegen/linking/clock.py.
"""

import random
from functools import partial

import pytest

from compiler.codegen.cost import executed
from compiler.codegen.dependencies import Region, write_program
from compiler.codegen.jobs.job import Job, Need
from compiler.codegen.jobs.job_runner import JobRunner
from compiler.codegen.linking.loops import Unsettled
from compiler.codegen.scratchpad import NoRoom, Scratch
from hw.config import make_config
from hw.isa.encoding import Opcode
from hw.isa.loops import LoopCounters
from tests.compiler.codegen.orders import execute, violations

CONFIG = make_config(variant="baseline", preset="tiny", buffer_banks=2, buffer_bank_depth=64)
WORDS = 128


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


def layers_of(rng):
    """A few layers, each of which reads what the one before has written."""
    place, layers = 1000, []
    x = 0
    for _ in range(3):
        size, tiles = rng.randrange(3, 10), rng.randrange(1, 4)
        weights = rng.choice((None, 500))
        layers.append(
            partial(Machine.layer, x=x, y=place, count=40, tiles=tiles, weights=weights, size=size)
        )
        x, place = place, place + rng.choice((400, 500))
    return layers


@pytest.mark.parametrize("number", range(4))
def test_loops_do_what_they_do_written_out(number, seed):
    rng = random.Random(f"{seed} {number}")
    commands = check(layers_of(rng), rng, loops=3)
    assert len(commands) < 40 * 3 * 3


@pytest.mark.parametrize("gap", [0, 5])
def test_loops_in_loops(gap, seed):
    """The inner loop is written once, and what follows waits for all of both."""
    rng = random.Random(seed)
    layers = [
        partial(Machine.table, x=5000, y=10000, rows=14, columns=26, gap=gap),
        partial(Machine.layer, x=10000, y=0, count=40, move=lambda item: 5 * (39 - item) + 2000),
    ]
    commands = write(layers)
    levels = [c.fields["level"] for c in commands if c.opcode is Opcode.REPEAT]
    assert 1 in levels and len(levels) < 15
    check(layers, rng, loops=len(levels), orders=1)


class Banked(Machine):
    """Jobs that use two banks in turn; each tile of an item is another one."""

    def _tile(self, address, size, tile, last, out, *inputs):
        reads, bank = [block.region() for block in inputs], self.runner.next_bank()
        self.emit(Opcode.VECTOR, reads, [out.region()], bank=bank, tile=tile)
        if last:
            self.store(address, size, out)
            self.scratch.drop([out])


def test_long_iterations_begin_with_the_same_bank():
    """An odd number of tiles does not make two bodies of one."""
    lengths = [
        len(write([lambda m, tiles=tiles: Banked(m.recorder).layer(0, 4000, 6, tiles=tiles)]))
        for tiles in (64, 65, 66)
    ]
    assert lengths[0] <= lengths[1] <= lengths[2] < lengths[0] + 20


def test_programs_do_not_grow_with_the_count():
    lengths = {
        len(write([partial(Machine.layer, x=0, y=5000, count=count, tiles=2, weights=900)]))
        for count in (40, 60, 1000)
    }
    assert len(lengths) == 1


def test_results_in_place(seed):
    """What an iteration writes is what it has read."""
    rng = random.Random(seed)
    check([partial(Machine.layer, x=0, y=0, count=40, tiles=2)], rng, loops=1)


def test_what_reads_all_of_it_waits_for_all_of_it(seed):
    """Two loops one behind the other, the second from the end on, and with its results over what
    the first has read."""
    rng = random.Random(seed)
    layers = [
        partial(Machine.layer, x=0, y=1000, count=40),
        partial(Machine.layer, x=1000, y=0, count=40, move=lambda item: 5 * (39 - item)),
    ]
    check(layers, rng, loops=2)


def test_written_out_where_an_iteration_reads_what_another_has_written(seed):
    """Three iterations before: their order matters in DRAM."""
    rng = random.Random(seed)
    check([partial(Machine.layer, x=0, y=15, count=40)], rng, loops=0)


def test_written_out_where_addresses_do_not_move_evenly(seed):
    rng = random.Random(seed)
    layer = partial(Machine.layer, x=0, y=1000, count=40, move=lambda item: item * item % 400)
    check([layer], rng, loops=0)


def test_written_out_without_likeness_or_with_few_iterations(seed):
    """If nothing is left out while jobs are done, what comes again is seen afterwards."""
    rng = random.Random(seed)
    check([partial(Machine.layer, x=0, y=1000, count=40, like=False)], rng, loops=0)
    check([partial(Machine.layer, x=0, y=1000, count=6, tiles=2)], rng, loops=0)
    check([partial(Machine.layer, x=0, y=1000, count=12, tiles=2)], rng, loops=1)


def test_what_is_in_the_buffer_behind_a_loop_is_known(seed):
    """The last items are read again from the buffer, and those of other iterations are not."""
    rng = random.Random(seed)
    first = partial(Machine.layer, x=0, y=1000, count=40, tiles=2)
    again = partial(Machine.layer, x=0, y=2000, count=40, tiles=2, like=False,
                    move=lambda item: 5 * (39 - item))  # fmt: skip
    commands = write([first, again])
    found, touched = expanded(commands)
    assert effect(touched) == effect(expanded(write([first, again], loops=False))[1])
    loads = sum(command.opcode is Opcode.LOAD for command in found)
    assert 40 < loads < 80
    assert not violations(touched, execute(found, rng, CONFIG.command_queue_depth))


def test_what_is_there_from_before_does_not_disturb(seed):
    """Some items of the second loop's end are in the buffer still, from the first one's
    beginning."""
    layers = [
        partial(Machine.layer, x=0, y=1000, count=60, size=3),
        partial(Machine.layer, x=0, y=2000, count=60, size=3, move=lambda item: 3 * (59 - item)),
    ]
    check(layers, random.Random(seed), loops=2)


class Parted(Machine):
    """Each tile of an item has a result of its own."""

    def parts(self, x, y, count, tiles, *, size=30, part=5):
        jobs = [
            Job((Need(object(), part), self.need(x + item * size, size)),
                partial(self._tile, y + (item * tiles + tile) * part, part, 0, True),
                like=tile, at=(item,))
            for item in range(count) for tile in range(tiles)
        ]  # fmt: skip
        self.runner.run(jobs)


def test_what_the_first_items_find_there_does_not_disturb(seed):
    """The first items have been read before. Others take turns at two places, because one is loaded
    while the one in front is in use."""

    def layer(machine):
        parted = Parted(machine.recorder)
        parted.layer(0, 4000, 2, size=30, like=False)
        parted.parts(0, 5000, 60, tiles=6)

    commands = check([layer], random.Random(seed), loops=1)
    assert len(commands) < 120


def test_a_loop_without_a_period_is_written_out(monkeypatch, seed):
    """If tokens turn out not to be the same."""
    calls = []

    def fail(entries, loops, tokens):
        if loops and not calls:
            calls.append(len(loops))
            raise Unsettled(frozenset([loops[1].name]))
        return original(entries, loops, tokens)

    from compiler.codegen.linking import linker

    original = linker.roll
    monkeypatch.setattr(linker, "roll", fail)
    layers = [partial(Machine.layer, x=1000 * n, y=1000 * n + 1000, count=40) for n in range(3)]
    check(layers, random.Random(seed), loops=2)
    assert calls == [3]


def added_up(machine, *, words, size):
    """Pairs of blocks, the first of them smaller ones, are added to one that stays, and is stored
    at last."""
    total, count = Need(object(), words), 5
    jobs = []
    for item in range(count):
        own = size if item else size // 2
        pair = [machine.need(2000 + 100 * item + own * n, own) for n in range(2)]
        run = partial(machine._tile, 9000, words, item, item == count - 1)
        jobs.append(Job((total, *pair), run))
    machine.runner.run(jobs)


def test_blocks_that_stay_are_gathered_where_there_is_no_room_else(seed):
    """In the middle of the memory the one that stays would leave two pieces, in which there is room
    for one block of a pair alone. Then the program is written again."""
    layers = [partial(Machine.layer, x=0, y=1000, count=4), partial(added_up, words=60, size=33)]
    commands = check(layers, random.Random(seed), loops=0)
    alone, both = (effect(expanded(part)[1]) for part in (write(layers[1:]), commands))
    assert alone and both | alone == both
    places = {c.fields["buffer_address"] for c in commands if c.opcode is Opcode.STORE}
    assert 0 in places
    with pytest.raises(NoRoom, match="34 more words do not fit into a memory of 128"):
        write([partial(added_up, words=61, size=34)])


@pytest.mark.parametrize("loops", [False, True])
def test_two_parts_that_just_fit_stay(loops):
    """What each tile reads one after the other is loaded once, though bank by bank the second part
    would have no room beside the first."""

    parts = (0, 40), (40, 54)  # place and words

    def layer(machine, tiles=24):
        jobs = []
        for tile in range(tiles):
            out = Need(object(), 8)
            for number, part in enumerate(parts):
                weights = machine.need(500 + 3 * (2 * tile + number), 3)
                run = partial(machine._tile, 2000 + 8 * tile, 8, number, number == 1)
                needs = (out, machine.need(*part), weights)
                jobs.append(Job(needs, run, like=number, at=(tile,)))
        machine.runner.run(jobs)

    commands, _ = expanded(write([layer], loops=loops))
    loads = [c for c in commands if c.opcode is Opcode.LOAD and c.fields["run_bytes"] > 8]
    # Again once where they come to lie side by side, and once where a loop begins.
    assert 2 <= len(loads) <= 6
    check([layer], random.Random(0), loops=1)


def test_what_a_job_has_changed_stays_for_the_next():
    """Also where an iteration begins between the two, with an empty memory."""
    loaded = []

    def layer(machine, count=20):
        def work(block, *, last, place):
            for _ in range(100):
                machine.emit(Opcode.VECTOR, [block.region()], [block.region()])
            if last:
                machine.store(2000 + place, 9, block)
                machine.scratch.drop([block])

        def load(block, *, place):
            loaded.append(place)
            machine.load(place, 9, block)

        jobs = []
        for item in range(count):
            need = Need(item, 9, partial(load, place=9 * item))
            for last in (False, True):
                run = partial(work, last=last, place=9 * item)
                # The first job is like none: loops begin with one that needs what it has changed.
                like = last if jobs else None
                jobs.append(Job((need._replace(changed=last),), run, like=like, at=(item,)))
        machine.runner.run(jobs)

    assert any(c.opcode is Opcode.REPEAT for c in write([layer]))
    assert len(loaded) == len(set(loaded)), "what had been changed was loaded again"
