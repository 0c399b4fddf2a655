"""Random commands through ``VectorEngine``, compared bit by bit with golden."""

import os
import random

import cocotb
import numpy as np

from emulator.machine import Machine
from golden.arithmetic.dot_product import encode
from hw.isa.encoding import Opcode, with_defaults
from hw.isa.error_codes import ErrorCode
from hw.isa.vector import VECTOR_LOOPS, Carry, Condition, Factor, Operation, Source, Term, Watch
from verif.programs.layer_cases import CASES
from verif.stimulus.vector import NUMBERS, OPERANDS, random_command

from .engine_bench import configuration
from .vector_bench import start

#: Cycles of each channel in an operation that takes the lanes in turn; a group takes one more.
SLOW_CYCLES = {Operation.DIVIDE: 30, Operation.ROOT: 30, Operation.EXPONENTIAL: 67}
#: Cycles of a chain beyond its groups, and of a sum for every ``cb`` beyond its own.
CHAIN_CYCLES, SUM_CYCLES = 45, 52


@cocotb.test()
async def random_commands(_):
    """Commands of all kinds, with stalls of several densities on all ports."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    for number in range(int(os.environ.get("VECTOR_COMMANDS", "60"))):
        bench.busy_read, bench.busy_write = rng.choice(
            ((0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3), (0, 0.9), (0.8, 0))
        )
        bench.machine.guard = rng.random() < 0.5
        bench.dut.guard.value = int(bench.machine.guard)
        bench.dut.sample_seed.value = bench.machine.sample_seed = rng.getrandbits(32)
        await bench.execute(random_command(rng, bench.machine))
        assert len(bench.done) == number + 1, "more than one done"


@cocotb.test()
async def back_to_back(_):
    """The next command waits at the port and sees what the one before has written."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng, busy_write=0.3)
    for _ in range(15):
        values = random_command(rng, bench.machine, limit=20)
        await bench.issue(values)
        bench.machine.run(values)
    while len(bench.done) < 15:
        await bench.step()
    bench.check("all")


def map_command(core, machine, *, pixels, blocks, **fields):
    """Over maps of ``pixels`` in memory order, X and Z of operands and Y one vector."""
    values = {"i0_count": pixels, "cb_count": blocks}
    values |= {"channels": blocks * core.rows, "o_address": OPERANDS + NUMBERS}
    values |= {"x_i0_stride": blocks, "y_address": OPERANDS, "z_address": OPERANDS // 2}
    return with_defaults(Opcode.VECTOR, values | fields)


@cocotb.test()
async def throughput(_):
    """Without stalls a group per cycle, twice as long for float32 that crosses words."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    groups, chunks = core.groups_per_word, core.chunks_per_wide
    slow = 1 if groups % chunks == 0 else chunks
    pixels, blocks = 60, 3
    number = pixels * blocks * groups
    # With one group in a word the vector stays; otherwise its groups are put together every time.
    again = number * slow if groups > 1 else number
    chain = {"factor": Factor.Y, "y_source": Source.WIDE, "add": 1, "carry": Carry.Z}
    maps = {"z_source": Source.NARROW, "z_i0_stride": blocks}
    wide = {"wide": 1, "o_i0_stride": blocks * chunks}
    wide_x = {"x_source": Source.WIDE, "x_address": OPERANDS, "x_i0_stride": 0, "i1_count": 1}
    wide_x["x_i1_stride"] = 1
    cases = {
        "copy": ({"o_i0_stride": blocks}, number),
        "scale and shift": ({"o_i0_stride": blocks} | chain, again),
        "two maps": ({"o_i0_stride": blocks} | chain | maps, again),
        "float32 results": (wide | chain, max(number * slow, again)),
        "sum": ({"reduce": 1, "wide": 1}, number + 7 * blocks * groups),
        "sum of products": (
            {"reduce": 1, "wide": 1, "term": Term.SUBTRACT, "y_source": Source.WIDE}
            | {"factor": Factor.Z} | maps,
            again + 7 * blocks * groups,
        ),
    }  # fmt: skip
    for name, (fields, steps) in cases.items():
        values = map_command(core, bench.machine, pixels=pixels, blocks=blocks, **fields)
        for single in (False, True):
            bench.single = single
            cycles = await bench.execute(values)
            more = cycles - steps
            limit = SUM_CYCLES * blocks if values["reduce"] else 0
            cocotb.log.info(
                f"{name}: {cycles} cycles, {number} groups, {'one port' if single else '3 ports'}"
            )
            if not single:
                assert 0 <= more <= limit + CHAIN_CYCLES + chunks, (
                    f"{name}: {cycles} cycles for {steps}"
                )
        bench.stalls = 0
    # A float32 stream.
    values = map_command(core, bench.machine, pixels=100, blocks=1, **wide, **wide_x)
    values |= {"x_i0_stride": chunks, "o_i0_stride": chunks, "x_i1_stride": 0}
    cycles = await bench.execute(values)
    cocotb.log.info(f"float32 to float32: {cycles} cycles, {100 * groups} groups")
    assert cycles <= 100 * groups * slow + CHAIN_CYCLES + chunks, f"{cycles} cycles"
    assert bench.stalls == 0, "stall event without a stall"


@cocotb.test()
async def slow_operations(_):
    """Divisions, roots and exponentials: so many cycles per channel, one for every lane without
    one and for every group."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    for operation, each in SLOW_CYCLES.items():
        values = map_command(core, bench.machine, pixels=2, blocks=1, operation=operation)
        values |= {"y_source": Source.NARROW, "y_i0_stride": 1, "o_i0_stride": 1}
        cycles = {}
        for channels in (core.rows - 1, core.rows):
            for pixels in (2, 3):
                values |= {"i0_count": pixels, "channels": channels}
                cycles[channels, pixels] = await bench.execute(values)
            word = cycles[channels, 3] - cycles[channels, 2]
            expected = channels * each + core.rows - channels + core.groups_per_word
            assert word == expected, f"{operation.name}: {word} cycles, expected {expected}"


@cocotb.test()
async def sampling(_):
    """A group takes 8 cycles; half of the elements are kept, others with another seed or stream,
    and the same ones again, whatever the command that walks over the same pixels."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    pixels, blocks = 24, 2
    values = map_command(core, bench.machine, pixels=pixels, blocks=blocks, sample=1)
    values |= {"x_source": Source.IMMEDIATE, "immediate": 0x3F800000, "o_i0_stride": blocks}
    values |= {"y_address": 1 << 23, "z_address": 0x00FFF0, "z_i0_stride": 1}
    first = OPERANDS + NUMBERS
    kept = {}
    for seed, number in ((5, 1), (6, 1), (5, 2), (5, 1)):
        bench.dut.sample_seed.value = bench.machine.sample_seed = seed
        cycles = await bench.execute(values | {"y_i0_stride": number})
        groups = pixels * blocks * core.groups_per_word
        assert 8 * groups <= cycles <= 8 * groups + CHAIN_CYCLES, (
            f"{cycles} cycles, {groups} groups"
        )
        found = bench.memory[first : first + pixels * blocks] != 0
        assert 0.3 < found.mean() < 0.7, f"{found.mean()} are kept"
        if (seed, number) in kept:
            np.testing.assert_array_equal(found, kept[seed, number])
        elif kept:
            assert 0.3 < (found != next(iter(kept.values()))).mean() < 0.7, "not independent"
        kept[seed, number] = found
    # The same pixels one by one, the last ones first.
    for pixel in reversed(range(pixels)):
        part = {"i0_count": 1, "y_i0_stride": 1, "z_address": 0x00FFF0 + pixel}
        await bench.execute(values | part | {"o_address": first + pixel * blocks})
    found = bench.memory[first : first + pixels * blocks] != 0
    np.testing.assert_array_equal(found, kept[5, 1])


@cocotb.test()
async def slow_writes(_):
    """More results than places for them, while the buffer hardly takes any: none is lost."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng, busy_write=0.97)
    for wide in (0, 1):
        pixels = 100
        values = map_command(core, bench.machine, pixels=pixels, blocks=1, wide=wide)
        values["o_i0_stride"] = core.chunks_per_wide if wide else 1
        await bench.execute(values)


@cocotb.test()
async def held_words_are_read_once(_):
    """A stream without strides is read once per ``cb``, a scalar never."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng, busy_read=0.3)
    values = map_command(core, bench.machine, pixels=20, blocks=2, factor=Factor.Y)
    values |= {"y_source": Source.WIDE, "o_i0_stride": 2}
    await bench.execute(values)
    reads = {"x": 40, "y": 2 * core.chunks_per_wide, "z": 0}
    assert bench.reads == reads, f"{bench.reads}, expected {reads}"


@cocotb.test()
async def watch_and_guard(_):
    """An infinity in Y is noted and counted once, guarded commands then do nothing."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    machine = bench.machine
    for memory in (bench.memory, machine.memory):
        memory[:OPERANDS] = encode(machine.fmt, 1.0)
        memory[40, core.rows - 1] = machine.fmt.infinity
    for guard in (0, 1):
        bench.dut.guard.value, machine.guard = guard, bool(guard)
        for first, channels in ((30, core.rows), (36, core.rows), (36, core.rows - 1), (30, 1)):
            watch = with_defaults(Opcode.VECTOR, {"i0_count": 6, "channels": channels})
            watch |= {"y_source": Source.NARROW, "y_address": first, "y_i0_stride": 1}
            watch |= {"watch": Watch.FIRST, "o_address": OPERANDS + NUMBERS, "o_i0_stride": 1}
            guarded = watch | {"watch": Watch.NONE, "guarded": 1, "x_address": 7}
            guarded |= {"o_address": OPERANDS + NUMBERS + 10, "channels": core.rows}
            guarded |= {"x_source": Source.IMMEDIATE, "immediate": rng.getrandbits(30)}
            await bench.execute(watch)
            await bench.execute(guarded)
            assert machine.noted == (first == 36 and channels == core.rows)
            await bench.execute(watch | {"y_address": 20, "watch": Watch.MORE})
            await bench.execute(guarded | {"immediate": rng.getrandbits(30)})
    assert machine.rejected == 1


@cocotb.test()
async def stall_event(_):
    """A port that does not accept shows on ``stall``, cycle by cycle."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng, busy_read=1)
    await bench.issue(map_command(core, bench.machine, pixels=4, blocks=1))
    await bench.watch_stalls(50, least=40)


@cocotb.test()
async def stop(_):
    """Stopped at any moment, the engine is idle at once, writes nothing, and works again."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng, busy_write=0.2)
    bench.machine.guard = False
    for moment in range(0, 75, 3):
        values = random_command(rng, bench.machine)
        values |= {"guarded": 0, "o_i2_stride": 0, "x_i2_stride": 0, "y_i2_stride": 0}
        bench.overlapping = True
        await bench.issue(values | {"z_i2_stride": 0, "i2_count": 100})
        await bench.stop(moment, cycles=45, quiet=[f"{name}_read__valid" for name in "xyz"])
        bench.overlapping = False
        await bench.execute(random_command(rng, bench.machine, limit=20))


@cocotb.test()
async def errors(_):
    """Each illegal field is reported once, without reads, writes or done; the next one works."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng)
    cases = [{f"{loop}_count": 0} for loop in VECTOR_LOOPS]
    cases += [{"watch": 3}]
    cases += [{"reduce": 1, "add": 1}, {"reduce": 1, "condition": Condition.EQUAL}]
    for operation in set(Operation) - {Operation.CHAIN}:
        cases += [{"reduce": 1, "operation": operation}]
        cases += [
            {"watch": Watch.FIRST, "operation": operation},
            {"sample": 1, "operation": operation},
        ]
    cases += [{"sample": 1, "reduce": 1}]
    cases += [{"sample": 1, f"{name}_source": Source.NARROW} for name in "yz"]
    for fields in cases:
        reads, writes = sum(bench.reads.values()), len(bench.writes)
        bench.dut.command__payload.value = bench.pack(with_defaults(Opcode.VECTOR, fields))
        bench.dut.command__valid.value = 1
        await bench.step()
        bench.dut.command__valid.value = 0
        for _ in range(40):
            await bench.step()
        assert bench.errors == [(ErrorCode.ILLEGAL_FIELD, 0)], f"{fields}: {bench.errors}"
        bench.errors.clear()
        assert not bench.done, f"{fields} was finished"
        accesses = sum(bench.reads.values()), len(bench.writes)
        assert accesses == (reads, writes), f"{fields} was done"
        await bench.execute(random_command(rng, bench.machine, limit=10))
        bench.done.clear()


@cocotb.test()
async def training_layers(_):
    """Compiled layers, the VECTOR commands on the engine, with stalls; transfers happen at once."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(config, core, rng, busy_read=0.1, busy_write=0.1)
    draw = np.random.default_rng(rng.getrandbits(32))
    for name, case in CASES.items():
        layer = case(draw, config, (2, 3, 4, core.rows + 1))
        bench.load(np.zeros((config.memory_depth[0], core.rows), bench.memory.dtype))
        bench.set_registers(layer.coefficients, guard=True)
        memory = bytearray(layer.image)
        transfers = Machine(config, memory, kernels=False)
        buffer = transfers.memories["memory 0"]
        cycles = 0
        for command in layer.commands[:-1]:
            if command.opcode is Opcode.VECTOR:
                cycles += await bench.execute(command.fields)
                continue
            buffer.write(slice(None), bench.memory.view(np.uint8).reshape(buffer.data.shape))
            transfers.execute(command.opcode, command.fields | {"core": 0})
            words = buffer.data.reshape(-1).view(bench.memory.dtype)
            bench.load(words.reshape(bench.memory.shape))
        cocotb.log.info(f"{name}: {len(layer.commands)} commands, {cycles} cycles")
        layer.check(bytes(memory), name)
        assert bench.rejected == layer.rejected, f"{name}: {bench.rejected} rejected"
