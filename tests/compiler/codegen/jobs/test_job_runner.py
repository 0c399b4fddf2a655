"""Jobs that come again become loops, and do what they do written out.

Covers: compiler/codegen/linking/loops.py, compiler/codegen/linking/tokens.py,
compiler/codegen/linking/linker.py, compiler/codegen/linking/clock.py.
"""

import random
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from compiler.adagp import compile_adagp
from compiler.codegen.dependencies import Recorder
from compiler.codegen.jobs.job import Job, Need
from compiler.codegen.jobs.job_runner import JobRunner
from compiler.codegen.linking.loops import Unsettled
from compiler.codegen.scratchpad import NoRoom
from hw.config import make_config
from hw.isa.encoding import Opcode
from tests.compiler.codegen.jobs.machine import CONFIG, Machine, check, effect, expanded, write
from tests.compiler.codegen.orders import execute, violations


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


def test_the_inner_loop_says_where_blocks_lie():
    """What it loads for the iteration behind the last one lies where it has for those before, even
    if it came to lie elsewhere the last time the inner loop was done."""
    machine = Machine(Recorder(CONFIG))
    outer, inner = (Mock(places=Mock(return_value=[place])) for place in (8, 40))
    runner, need = machine.runner, machine.need(0, 4)
    runner._loops = [outer, inner]
    assert runner._take_again(machine.scratch, 0, 0, need).address == 40
    assert runner._take_again(machine.scratch, 1, 0, need).address == 8


def layers_of_many_kinds():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 9, 3, padding=1), nn.BatchNorm2d(9), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(9, 9, 3, padding=1, groups=9), nn.BatchNorm2d(9), nn.SiLU(), nn.Dropout(0.25),
        nn.Conv2d(9, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 3),
    )  # fmt: skip


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
    """Nine iterations before, which is further than the next period: their order matters in
    DRAM."""
    rng = random.Random(seed)
    check([partial(Machine.layer, x=0, y=45, count=40)], rng, loops=0)


@pytest.mark.parametrize("distance", [1, 2, 3])
def test_loops_where_an_iteration_reads_what_the_period_before_has_written(distance, seed):
    """What waits for the last periods left out is known behind them as well."""
    rng = random.Random(seed)
    check([partial(Machine.layer, x=0, y=5 * distance, count=40)], rng, loops=1)


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


@pytest.mark.parametrize(
    ("variant", "beside"), [("baseline", False), ("low", True), ("efficient", True), ("max", True)]
)
def test_commands_of_like_jobs_are_emitted_again(variant, beside, monkeypatch):
    """The program is the one that there is when every job is run."""
    config = make_config(variant=variant, preset="tiny")
    again: list[int] = []
    emit_again = Recorder.emit_again

    def counted(self, commands):
        again.append(len(commands))
        emit_again(self, commands)

    def run(self, job, blocks):
        job.run(*blocks)

    def commands():
        program = compile_adagp(
            layers_of_many_kinds(), config, (3, 6, 6), images=40, beside=beside, loops=True
        )
        return program.loop.commands

    monkeypatch.setattr(Recorder, "emit_again", counted)
    found = commands()
    assert len(again) > 20, f"{len(again)} jobs"
    monkeypatch.setattr(JobRunner, "_emit", run)
    assert found == commands()
