"""Semaphores of recorded programs: every order that queues allow keeps what matters.

Covers: compiler/codegen/linking/entries.py, compiler/codegen/linking/interleaving.py,
compiler/codegen/linking/tokens.py.
"""

import contextlib
import random
from itertools import permutations
from types import SimpleNamespace

import pytest

from compiler.codegen.dependencies import Recorder, Region
from compiler.codegen.linking import interleaving
from compiler.errors import CompileError
from hw.config import make_config
from hw.isa.encoding import Opcode
from tests.compiler.codegen.orders import conflicts, execute, violations

CONFIG = make_config(variant="baseline", preset="tiny")
A, B, C, D = (Region("buffer", place, place + 1) for place in range(4))


def random_program(rng, length, background=False, config=CONFIG, cores=1):
    """(recorder, [(opcode, reads, writes)]): layers that load, compute and store, somewhere, on any
    of the ``cores``; those without products or loss perhaps in the background."""
    commands, behind, places = [], set(), []

    def place(memory, size):
        begin = rng.randrange(size - 3)
        return Region(memory, begin, begin + rng.randrange(1, 4))

    while len(commands) < length:
        first = len(commands)
        inputs = [place("buffer", 32) for _ in range(rng.randrange(1, 4))]
        result = place("buffer", 32)
        for block in inputs:
            commands.append((Opcode.LOAD, [place("dram", 64)], [block]))
        # Two threads need more pairs of queues: without the loss there are semaphores for them.
        kinds = ["product", "product", "vector", "vector"] + ["loss"] * (not background)
        kind = rng.choice(kinds)
        if kind == "product":
            sums = Region(f"bank {rng.randrange(2)}", 0, 8)
            commands += [
                (Opcode.WEIGHTS, inputs[:1], []),
                (Opcode.MATMUL, inputs[-1:], [sums]),
                (Opcode.POST, [sums], [result]),
            ]
        elif kind == "vector":
            for _ in range(rng.randrange(1, 3)):
                commands.append((Opcode.VECTOR, [*inputs, result], [result]))
        else:
            commands.append((Opcode.LOSS, inputs, [result]))
        commands.append((Opcode.STORE, [result], [place("dram", 64)]))
        if background and kind == "vector":
            behind |= set(range(first, len(commands)))
        places += [rng.randrange(cores) if cores > 1 else 0] * (len(commands) - first)
    recorder = Recorder(config)
    for number, (opcode, reads, writes) in enumerate(commands):
        with recorder.background() if number in behind else contextlib.nullcontext():
            recorder.emit(opcode, {}, reads=reads, writes=writes, core=places[number])
    return recorder, commands


@pytest.mark.parametrize("number", range(8))
def test_any_order_keeps_what_matters(number, seed):
    rng = random.Random(f"{seed} {number}")
    recorder, commands = random_program(rng, 120)
    linked = recorder.link()
    assert [command.opcode for command in linked[:-1]] == [opcode for opcode, *_ in commands]
    for _ in range(10):
        assert not violations(commands, execute(linked, rng, CONFIG.command_queue_depth))


@pytest.mark.parametrize("number", range(8))
def test_background(number, seed, monkeypatch):
    """Commands of both threads in another order, and still nothing is missed."""
    rng = random.Random(f"{seed} {number}")
    monkeypatch.setattr(
        interleaving, "duration", lambda *_: (rng.randrange(1, 50), rng.randrange(40))
    )
    recorder, commands = random_program(rng, 120, background=True)
    before = {id(command): n for n, command in enumerate(recorder.commands(0, len(recorder)))}
    linked = recorder.link()
    order = [before[id(command)] for command in linked[:-1]]
    assert sorted(order) == list(range(len(commands)))
    assert order != sorted(order)
    for place, number in enumerate(order):
        later = [n for n in order[:place] if n > number and commands[n][0] is commands[number][0]]
        assert not any(conflicts(commands[n], commands[number]) for n in later)
    for _ in range(10):
        assert not violations(commands, execute(linked, rng, CONFIG.command_queue_depth), order)


def test_the_background_falls_behind(monkeypatch):
    """A VECTOR that waits for a long LOAD does not keep others waiting; what needs it does."""
    long, short = Region("buffer", 0, 4), Region("buffer", 4, 8)
    monkeypatch.setattr(interleaving, "duration", lambda command, _: (command.fields["cycles"], 0))
    recorder = Recorder(CONFIG)
    with recorder.background():
        recorder.emit(Opcode.LOAD, {"cycles": 1000}, writes=[long])
        recorder.emit(Opcode.VECTOR, {"cycles": 1}, reads=[long], writes=[Region("out", 0, 1)])
    recorder.emit(Opcode.VECTOR, {"cycles": 2}, writes=[short])
    recorder.emit(Opcode.VECTOR, {"cycles": 3}, reads=[short, Region("out", 0, 1)])
    cycles = [command.fields.get("cycles") for command in recorder.link()]
    assert cycles == [1000, 2, 1, 3, None]


@pytest.mark.parametrize(
    ("commands", "names"),
    [
        (  # the same queue waits
            [
                (Opcode.LOAD, [], [A]),
                (Opcode.VECTOR, [A], [B]),
                (Opcode.LOSS, [B], [C]),
                (Opcode.VECTOR, [C], []),
            ],
            {0: "c0.load->vector, then c0.loss->vector", 1: "c0.vector->loss"},
        ),
        (  # another one does, whose command in front knows that the first pair is over
            [
                (Opcode.LOAD, [], [A]),
                (Opcode.VECTOR, [A], [B]),
                (Opcode.STORE, [B], []),
                (Opcode.LOSS, [B], [C]),
                (Opcode.STORE, [C], []),
            ],
            {
                0: "c0.load->vector, then c0.loss->store",
                1: "c0.vector->store",
                2: "c0.vector->loss",
            },
        ),
        (  # the first pair goes on when the other one is over
            [
                (Opcode.LOAD, [], [A]),
                (Opcode.VECTOR, [A], [B]),
                (Opcode.LOSS, [B], [C]),
                (Opcode.LOAD, [B], [D]),
                (Opcode.VECTOR, [C], [A]),
                (Opcode.LOAD, [A], [C]),
                (Opcode.VECTOR, [C], []),
            ],
            {
                0: "c0.load->vector, then c0.loss->vector, then c0.load->vector",
                1: "c0.vector->loss",
                2: "c0.vector->load",
            },
        ),
    ],
)
def test_a_semaphore_for_one_pair_after_the_other(commands, names, seed):
    """When the last token of a pair has been taken, another one may use its semaphore."""
    count = len(names)
    config = SimpleNamespace(semaphores=count, semaphore_count=count, command_queue_depth=4)
    recorder = Recorder(config)
    for opcode, reads, writes in commands:
        recorder.emit(opcode, {}, reads=reads, writes=writes)
    linked = recorder.link()
    assert recorder.semaphores == names
    rng = random.Random(seed)
    for _ in range(50):
        assert not violations(commands, execute(linked, rng, config.command_queue_depth))


def test_who_waits_early_takes_the_tokens_of_others():
    """A VECTOR at the head of its queue would take what LOAD gives to LOSS."""
    config = SimpleNamespace(semaphores=2, semaphore_count=2, command_queue_depth=4)
    recorder = Recorder(config)
    recorder.emit(Opcode.LOAD, {}, writes=[A])
    recorder.emit(Opcode.LOSS, {}, reads=[A], writes=[B])
    recorder.emit(Opcode.STORE, {}, reads=[B])
    recorder.emit(Opcode.VECTOR, {}, writes=[B])
    with pytest.raises(CompileError, match="needs 3 semaphores, not 2"):
        recorder.link()


def test_few_semaphores(seed, monkeypatch):
    """Two cores that share what they have: refused, or nothing is missed in any order."""
    rng = random.Random(seed)
    monkeypatch.setattr(
        interleaving, "duration", lambda *_: (rng.randrange(1, 50), rng.randrange(40))
    )
    shared = 0
    for count in (6, 7, 8, 9, 10, 11) * 40:
        config = SimpleNamespace(semaphores=count, semaphore_count=2 * count, command_queue_depth=4)
        recorder, commands = random_program(rng, 40, config=config, cores=2)
        before = {id(command): n for n, command in enumerate(recorder.commands(0, len(recorder)))}
        with contextlib.suppress(CompileError):
            linked = recorder.link()
            order = [before[id(command)] for command in linked[:-1]]
            turns = [name.split(", then ") for name in recorder.semaphores.values()]
            shared += any(len(names) > 1 for names in turns)
            divided = any(len(set(names)) < len(names) for names in turns)
            for _ in range(100 if divided else 4):
                assert not violations(commands, execute(linked, rng, 4), order)
    assert shared


def test_products_in_the_background():
    recorder = Recorder(CONFIG)
    with recorder.background(), pytest.raises(AssertionError, match="MATMUL"):
        recorder.emit(Opcode.MATMUL, {})


def test_the_check_can_fail(seed):
    """Without one of the waits some order breaks what matters."""
    rng = random.Random(seed)
    recorder, commands = random_program(rng, 60)
    linked = recorder.link()
    missed = 0
    waiting = [number for number, command in enumerate(linked) if command.wait]
    for number in waiting[:10]:
        wait = linked[number].wait
        bit = wait & -wait
        linked[number].wait ^= bit
        source = next(n for n in range(number - 1, -1, -1) if linked[n].signal & bit)
        linked[source].signal ^= bit
        broken = any(
            violations(commands, execute(linked, rng, CONFIG.command_queue_depth))
            for _ in range(20)
        )
        missed += not broken
        linked[number].wait, linked[source].signal = wait, linked[source].signal | bit
    assert missed <= len(waiting[:10]) // 2, f"{missed} missing waits went unnoticed"


def test_nothing_waits_without_need():
    recorder = Recorder(CONFIG)
    recorder.emit(Opcode.LOAD, {}, writes=[Region("buffer", 0, 4)])
    recorder.emit(Opcode.LOAD, {}, writes=[Region("buffer", 4, 8)])
    recorder.emit(Opcode.VECTOR, {}, reads=[Region("buffer", 0, 4)], writes=[Region("b", 0, 1)])
    recorder.emit(Opcode.VECTOR, {}, reads=[Region("buffer", 0, 8)], writes=[Region("b", 1, 2)])
    recorder.emit(Opcode.STORE, {}, reads=[Region("b", 0, 2)], writes=[Region("dram", 0, 2)])
    load, second, vector, both, store, halt = recorder.link()
    assert (load.signal, vector.wait) == (1, 1)
    assert (second.signal, both.wait) == (1, 1)
    assert (both.signal, store.wait, vector.signal) == (2, 2, 0)
    assert store.signal == halt.wait == 0


def test_tokens_are_merged(seed):
    """Twenty LOADs run before the first VECTOR: of the tokens of two some become one."""
    commands = [(Opcode.LOAD, [], [Region("buffer", n, n + 1)]) for n in range(20)]
    commands += [(Opcode.VECTOR, [Region("buffer", n, n + 1)], []) for n in range(20)]
    recorder = Recorder(CONFIG)
    for opcode, reads, writes in commands:
        recorder.emit(opcode, {}, reads=reads, writes=writes)
    linked = recorder.link()
    assert sum(bool(command.wait) for command in linked) == 15
    rng = random.Random(seed)
    for _ in range(20):
        assert not violations(commands, execute(linked, rng, CONFIG.command_queue_depth))


def test_too_many_tokens():
    """Each VECTOR waits for the LOAD in front of it, so that none can wait for the next one."""
    recorder = Recorder(make_config(variant="baseline", preset="tiny", command_queue_depth=20))
    for number in range(20):
        recorder.emit(Opcode.LOAD, {}, writes=[Region("buffer", number, number + 1)])
        recorder.emit(Opcode.VECTOR, {}, reads=[Region("buffer", number, number + 1)])
    with pytest.raises(CompileError, match="15 tokens may wait between LOAD and VECTOR"):
        recorder.link()


def thirteen_pairs(variant):
    """Every second command waits for the one in front of it, which nothing else leads to."""
    recorder = Recorder(make_config(variant=variant, preset="tiny", semaphores=10))
    queues = (Opcode.LOAD, Opcode.VECTOR, Opcode.STORE, Opcode.LOSS)
    pairs = [*permutations(queues, 2), (Opcode.POST, Opcode.STORE)]
    for number, (first, second) in enumerate(pairs):
        region = Region("dram", number, number + 1)
        recorder.emit(first, {}, writes=[region])
        recorder.emit(second, {}, reads=[region])
    return recorder


def test_semaphores_of_another_core():
    """Those that the other core has no use for."""
    linked = thirteen_pairs("max").link()
    signals = [command.signal for command in linked if command.signal]
    waits = [command.wait for command in linked if command.wait]
    assert signals == waits == [1 << number for number in range(13)]


def test_too_few_semaphores():
    with pytest.raises(CompileError, match="needs 13 semaphores, not 10: LOAD to VECTOR, LOAD to"):
        thirteen_pairs("baseline").link()
