"""The sequencer's checks of commands, and their way into the queues.

Covers: hw/control/command_checks.py.
"""

import itertools
import random

import pytest

from hw.config import make_config
from hw.control import sequencer
from hw.control.command_queue import CHUNK_WIDTH, command_chunks
from hw.control.sequencer import DEADLOCK_CYCLES
from hw.isa.encoding import COMMANDS, HEADER_LAYOUT, QUEUE_OPCODES, Opcode, encode
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit
from verif.blocks.control.sequencer_bench import ADDRESS, patched, simulate, values_of

BASELINE = make_config(variant="baseline", preset="tiny")
MAX = make_config(variant="max", preset="tiny")
HALT = encode(Opcode.HALT)


@pytest.mark.parametrize("config", [BASELINE, MAX], ids=["baseline", "max"])
def test_random_programs(config, seed):
    """Every command reaches its queue with all its bits, in order, however slow the queues are."""

    async def process(bench):
        rng = random.Random(seed)
        for chance in (1.0, 0.5, 0.2):
            program, expected = [], []
            masks = (1 << config.semaphore_count) - 1
            for _ in range(25):
                number = rng.randrange(bench.queues)
                core, opcode = bench.dut.queues[number]
                header = {
                    "core": core,
                    "wait": rng.getrandbits(32) & masks,
                    "signal": rng.getrandbits(32) & masks,
                }
                command = encode(opcode, **header, **values_of(opcode, rng))
                bits = CHUNK_WIDTH * command_chunks(opcode)
                body = (int.from_bytes(command, "little") % (1 << bits)) >> HEADER_LAYOUT.size
                expected.append((number, header["wait"], header["signal"], body))
                program.append(command)
            # A pattern of its own for every queue.
            bench.ready = lambda cycle, chance=chance: sum(
                (random.Random(f"{seed} {cycle} {n}").random() < chance) << n
                for n in range(bench.queues)
            )
            bench.trace.clear()
            await bench.start([*program, HALT])
            await bench.until("finish", limit=4000)
            assert bench.errors == []
            assert bench.pushed == expected
            assert sum(event["dispatched"] for event in bench.trace) == len(program) + 1

    simulate(config, process)


def test_throughput_is_a_cycle_and_one_per_chunk():
    cost = 1 + command_chunks(Opcode.LOAD)
    load = encode(Opcode.LOAD, **values_of(Opcode.LOAD))

    async def process(bench):
        bench.trace.clear()
        await bench.start([load] * 20)
        await bench.until("wants")
        for _ in range(19 * cost - 1):
            await bench.step()
        cycles = [n for n, event in enumerate(bench.trace) if event["dispatched"]]
        assert [b - a for a, b in itertools.pairwise(cycles)] == [cost] * (len(cycles) - 1)
        assert len(cycles) == 19

    simulate(BASELINE, process)


@pytest.mark.parametrize("opcode", QUEUE_OPCODES, ids=lambda opcode: opcode.name)
def test_every_field_below_its_minimum_or_without_a_name(opcode):
    good = encode(opcode, **values_of(opcode))
    bad = []
    for field in COMMANDS[opcode]:
        if field.minimum is not None:
            bad += [(field.name, value) for value in range(field.minimum)]
        if field.enum is not None:
            bad += [(field.name, v) for v in range(1 << field.width) if v not in set(field.enum)]
    assert bad

    async def process(bench):
        for name, value in bad:
            errors = await bench.run([good, patched(good, name, value), HALT])
            assert errors == [(ErrorCode.ILLEGAL_FIELD, Unit.SEQUENCER, ADDRESS + 64)], (
                f"{opcode.name} with {name} = {value}: {errors}"
            )
            assert len(bench.pushed) == 1, f"{opcode.name} with {name} = {value} reached a queue"

    simulate(BASELINE, process)


@pytest.mark.parametrize("opcode", QUEUE_OPCODES, ids=lambda opcode: opcode.name)
def test_every_field_may_have_any_legal_value(opcode):
    """One bit set in a field is enough not to be zero, and every name is taken."""

    async def process(bench):
        good = encode(opcode, **values_of(opcode))
        program = []
        for field in COMMANDS[opcode]:
            if field.enum is not None:
                program += [patched(good, field.name, int(value)) for value in field.enum]
            else:
                program += [patched(good, field.name, 1 << bit) for bit in range(field.width)]
        assert await bench.run([*program, HALT]) == []
        assert len(bench.pushed) == len(program)

    simulate(BASELINE, process)


@pytest.mark.parametrize(
    ("fields", "cores", "missing"),
    [
        ({}, 2, [(Opcode.LOSS, 1)]),
        ({"training": False}, 1, [(Opcode.VECTOR, 0), (Opcode.LOSS, 0)]),
        (
            {"operand_format": "int8"},
            2,
            [(o, c) for o in QUEUE_OPCODES[-2:] for c in (0, 1)],
        ),
    ],
    ids=["LOSS on core 1", "forward only", "int8"],
)
def test_opcodes_that_a_core_does_not_execute(fields, cores, missing):
    """They are undefined there, whatever their fields hold, and defined elsewhere."""
    variant = "max" if cores == 2 else "baseline"
    config = make_config(variant=variant, preset="tiny", **fields)

    async def process(bench):
        for core in range(cores):
            for opcode in QUEUE_OPCODES:
                errors = await bench.run([encode(opcode, core=core, **values_of(opcode)), HALT])
                expected = []
                if (opcode, core) in missing:
                    expected = [(ErrorCode.UNDEFINED_COMMAND, Unit.SEQUENCER, ADDRESS)]
                assert errors == expected, f"{opcode.name} on core {core}: {errors}"
                queues = [bench.dut.queues[number] for number, *_ in bench.pushed]
                assert queues == ([] if expected else [(core, opcode)])

    simulate(config, process)


@pytest.mark.parametrize("fields", [{"training": False}, {"operand_format": "int8"}])
def test_batch_without_engines_for_training(fields):
    config = make_config(variant="baseline", preset="tiny", **fields)

    async def process(bench):
        errors = await bench.run([encode(Opcode.BATCH, **values_of(Opcode.BATCH)), HALT])
        assert errors == [(ErrorCode.UNDEFINED_COMMAND, Unit.SEQUENCER, ADDRESS)]

    simulate(config, process)


def test_undefined_opcodes(seed):
    async def process(bench):
        undefined = [code for code in range(256) if code not in set(Opcode)]
        codes = {0, 11, 12, 0x81, 0x82, 255, *random.Random(seed).sample(undefined, 30)}
        for code in sorted(codes):
            # Whatever else is wrong with it.
            command = code.to_bytes(1, "little") + bytes([0xFF] * 63)
            errors = await bench.run([command, HALT])
            expected = [(ErrorCode.UNDEFINED_COMMAND, Unit.SEQUENCER, ADDRESS)]
            assert errors == expected, f"opcode {code:#04x}: {errors}"
            assert bench.pushed == []

    simulate(BASELINE, process)


@pytest.mark.parametrize("opcode", [Opcode.HALT, *QUEUE_OPCODES], ids=lambda opcode: opcode.name)
def test_header_of_a_machine_with_one_core(opcode):
    """Core 1 and semaphores that do not exist."""

    async def process(bench):
        good = encode(opcode, **values_of(opcode))
        count = BASELINE.semaphore_count
        bad = [("core", 1)]
        bad += [(mask, 1 << bit) for mask in ("wait", "signal") for bit in range(count, 32)]
        for name, value in bad:
            errors = await bench.run([patched(good, name, value), HALT])
            assert errors == [(ErrorCode.ILLEGAL_FIELD, Unit.SEQUENCER, ADDRESS)], (name, value)
            assert bench.pushed == []
        for name in ("wait", "signal"):
            legal = patched(good, name, (1 << count) - 1)
            assert await bench.run([legal, HALT]) == []

    simulate(BASELINE, process)


@pytest.mark.parametrize("opcode", [Opcode.BATCH, Opcode.REPEAT], ids=lambda opcode: opcode.name)
def test_header_of_what_has_no_queue(opcode):
    """Neither core nor semaphores; the rest of the command belongs to others."""

    async def process(bench):
        good = encode(opcode, **values_of(opcode))
        bits = [("core", 1), *((mask, 1 << n) for mask in ("wait", "signal") for n in (0, 7, 31))]
        for name, value in bits:
            errors = await bench.run([patched(good, name, value), HALT])
            assert errors == [(ErrorCode.ILLEGAL_FIELD, Unit.SEQUENCER, ADDRESS)], (name, value)

    simulate(MAX, process)


@pytest.mark.parametrize("ending", ["resume", "complete", "bad_target"])
def test_batch_waits_for_its_end(ending):
    """Nothing goes on, and nothing is a deadlock, while BATCH waits behind empty queues."""
    load = encode(Opcode.LOAD, **values_of(Opcode.LOAD))
    batch = encode(Opcode.BATCH, **values_of(Opcode.BATCH))

    async def process(bench):
        ctx, dut = bench.ctx, bench.dut
        await bench.start([load, batch, load, HALT])
        for _ in range(3 * DEADLOCK_CYCLES):
            event = await bench.step()
            assert not (event["stop"] or event["clear"])
        assert len(bench.pushed) == 1 and ctx.get(dut.batch) and ctx.get(dut.drained)
        assert sum(event["dispatched"] for event in bench.trace) == 1
        ctx.set(getattr(dut, ending), 1)
        event = await bench.step()
        ctx.set(getattr(dut, ending), 0)
        assert event["dispatched"] == (ending != "bad_target")
        if ending == "resume":
            bench.program.pop(0)
            bench.position += 1
        await bench.until("finish")
        expected = [(ErrorCode.BATCH_TARGET, Unit.SEQUENCER, ADDRESS + 64)]
        assert bench.errors == (expected if ending == "bad_target" else [])
        assert len(bench.pushed) == 1 + (ending == "resume")
        assert await bench.run([HALT]) == []

    simulate(BASELINE, process)


def test_deadlock_before_batch():
    batch = encode(Opcode.BATCH, **values_of(Opcode.BATCH))

    async def process(bench):
        bench.ctx.set(bench.dut.empty, bench.all - 1)
        await bench.start([batch])
        assert DEADLOCK_CYCLES <= await bench.until("stop", 100) <= DEADLOCK_CYCLES + 4
        await bench.until("finish")
        assert bench.errors == [(ErrorCode.DEADLOCK, Unit.SEQUENCER, ADDRESS)]

    simulate(BASELINE, process)


def test_repeat_waits_for_its_end_only():
    """Not for the queues; nothing goes on behind it meanwhile, and nothing is a deadlock."""
    load = encode(Opcode.LOAD, **values_of(Opcode.LOAD))
    repeat = encode(Opcode.REPEAT, **values_of(Opcode.REPEAT))

    async def process(bench):
        ctx, dut = bench.ctx, bench.dut
        ctx.set(dut.empty, 0)
        await bench.start([load, repeat, load, HALT])
        levels = []
        for _ in range(3 * DEADLOCK_CYCLES):
            event = await bench.step()
            assert not (event["stop"] or event["clear"])
            levels.append(ctx.get(dut.repeat))
        assert len(bench.pushed) == 1 and levels == sorted(levels) and levels[-1]
        ctx.set(dut.repeated, 1)
        event = await bench.step()
        ctx.set(dut.repeated, 0)
        assert event["dispatched"] and event["taken"] and not ctx.get(dut.repeat)
        for _ in range(20):
            await bench.step()
        assert len(bench.pushed) == 2 and not ctx.get(dut.repeat)
        ctx.set(dut.empty, bench.all)
        await bench.until("finish")
        assert bench.errors == []
        # What is wrong with a target, or with a count of 0.
        ctx.set(dut.bad_loop, 1)
        errors = await bench.run([repeat, HALT])
        assert errors == [(ErrorCode.REPEAT_TARGET, Unit.SEQUENCER, ADDRESS)]
        ctx.set(dut.bad_loop, 0)
        errors = await bench.run([load, patched(repeat, "count", 0), HALT])
        assert errors == [(ErrorCode.ILLEGAL_FIELD, Unit.SEQUENCER, ADDRESS + 64)]

    simulate(BASELINE, process)


def test_a_batch_in_a_loop_is_refused():
    batch = encode(Opcode.BATCH, **values_of(Opcode.BATCH))

    async def process(bench):
        bench.ctx.set(bench.dut.empty, bench.all - 1)
        bench.ctx.set(bench.dut.in_loop, 1)
        errors = await bench.run([batch, HALT])
        assert errors == [(ErrorCode.OPEN_LOOP, Unit.SEQUENCER, ADDRESS)]
        # HALT ends the run wherever it is.
        bench.ctx.set(bench.dut.empty, bench.all)
        assert await bench.run([HALT]) == []

    simulate(BASELINE, process)


def test_an_address_is_replaced(seed):
    """That of LOAD and STORE and nothing else; not before ``hold`` falls."""

    async def process(bench):
        ctx, dut, rng = bench.ctx, bench.dut, random.Random(seed)
        for opcode in QUEUE_OPCODES:
            for held in (0, 1, 5):
                address = rng.getrandbits(32)
                ctx.set(dut.moved_address, address)
                ctx.set(dut.moved, opcode in (Opcode.LOAD, Opcode.STORE))
                good = encode(opcode, **values_of(opcode, rng))
                await bench.start([good, HALT])
                ctx.set(dut.hold, 1)
                for _ in range(1 + held):
                    await bench.step()
                    assert not bench.chunks, f"{opcode.name} did not wait"
                ctx.set(dut.hold, 0)
                await bench.until("finish")
                assert bench.errors == []
                body = bench.pushed[0][3]
                bits = CHUNK_WIDTH * command_chunks(opcode) - HEADER_LAYOUT.size
                word = int.from_bytes(good, "little")
                if ctx.get(dut.moved):
                    word = int.from_bytes(patched(good, "dram_address", address), "little")
                assert body == word >> HEADER_LAYOUT.size & ((1 << bits) - 1), opcode.name

    simulate(BASELINE, process)


def test_fewest_semaphores():
    config = make_config(variant="baseline", preset="tiny", semaphores=10)

    async def process(bench):
        load = encode(Opcode.LOAD, **values_of(Opcode.LOAD))
        for bit in range(32):
            errors = await bench.run([patched(load, "wait", 1 << bit), HALT])
            assert bool(errors) == (bit >= 10), bit

    simulate(config, process)


def test_the_bench_sees_a_missing_check(monkeypatch):
    """Without the checks, illegal commands go through, and the tests above would notice."""
    monkeypatch.setattr(sequencer, "command_checks", lambda *command: (0, 0))
    good = encode(Opcode.POST, **values_of(Opcode.POST))

    async def process(bench):
        assert await bench.run([patched(good, "ph_count", 0), HALT]) == []
        assert len(bench.pushed) == 1

    simulate(BASELINE, process)
