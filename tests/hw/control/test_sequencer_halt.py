"""Every way in which the sequencer ends a run.

Covers: hw/control/sequencer.py, verif/blocks/control/sequencer_bench.py.
"""

import random

import pytest
from amaranth.sim import Simulator

from hw.config import make_config
from hw.control.command_queue import CHUNK_WIDTH, command_chunks
from hw.control.sequencer import DEADLOCK_CYCLES
from hw.isa.encoding import COMMAND_BYTES, Opcode, decode, encode
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit
from verif.blocks.control.sequencer_bench import ADDRESS, SOURCES, Control, simulate, values_of

BASELINE = make_config(variant="baseline", preset="tiny")
MAX = make_config(variant="max", preset="tiny")
HALT = encode(Opcode.HALT)
LOAD = encode(Opcode.LOAD, **values_of(Opcode.LOAD))


def test_halt_waits_for_all_queues():
    async def process(bench):
        ctx, dut = bench.ctx, bench.dut
        for queue in range(bench.queues):
            ctx.set(dut.blocked, 0)
            ctx.set(dut.empty, bench.all ^ 1 << queue)
            # What lies behind HALT does not matter.
            await bench.start([HALT, bytes([0xA5] * 64)])
            for _ in range(30):
                event = await bench.step()
                assert not (event["finish"] or event["dispatched"] or event["stop"]), queue
            ctx.set(dut.empty, bench.all)
            event = await bench.step()
            assert event["dispatched"], queue
            assert await bench.until("finish") <= 8
            assert bench.errors == [] and bench.pushed == []
            for _ in range(5):
                assert not any((await bench.step()).values()), "something after the end"

    simulate(MAX, process)


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_waits_for_the_bus(fails):
    """Also without an error: the fetch may have asked for what lies behind HALT."""

    async def process(bench):
        ctx, dut = bench.ctx, bench.dut
        for pause in (0, 1, 2, 3):
            ctx.set(dut.bus_busy, 1)
            await bench.start([bytes(64) if fails else HALT])
            await bench.until("stop")
            for _ in range(40):
                event = await bench.step()
                assert event["stop"] and not event["clear"] and not event["finish"]
            # A request on its way to the bus: quiet for up to three cycles, then busy again.
            ctx.set(dut.bus_busy, 0)
            for _ in range(pause):
                assert (await bench.step())["stop"]
            ctx.set(dut.bus_busy, 1)
            for _ in range(10):
                assert (await bench.step())["stop"]
            ctx.set(dut.bus_busy, 0)
            bench.trace.clear()
            await bench.until("finish")
            *stops, clear, end = bench.trace
            assert len(stops) == 4 and all(event["stop"] for event in stops)
            assert clear["clear"] and not clear["stop"]
            assert end["finish"] and not end["clear"]
            assert len(bench.errors) == fails
        # And the next run works.
        assert await bench.run([HALT]) == []

    simulate(BASELINE, process)


def set_error(ctx, dut, source, value):
    ctx.set(dut.errors[source].valid, value)
    ctx.set(dut.errors[source].code, 200 + source)
    ctx.set(dut.errors[source].unit, 130 + source)
    ctx.set(dut.errors[source].address, 0xFEDC_0000_0000_0000 + source)


@pytest.mark.parametrize("mask", range(1, 1 << SOURCES))
def test_reported_errors(mask):
    """The lowest source wins, before the sequencer's own; later errors are not reported."""

    async def process(bench):
        ctx, dut = bench.ctx, bench.dut
        first = (mask & -mask).bit_length() - 1
        expected = [(200 + first, 130 + first, 0xFEDC_0000_0000_0000 + first)]
        sources = [source for source in range(SOURCES) if mask >> source & 1]
        # In the cycle of: nothing special, an undefined command's discovery, the finish.
        for program, delay in (([], 3), ([bytes(64)], 1), ([HALT], 1), ([HALT], 2)):
            await bench.start(program)
            for _ in range(delay):
                await bench.step()
            assert bench.errors == []
            for source in sources:
                set_error(ctx, dut, source, 1)
            await bench.step()
            assert bench.errors == expected, (program, delay)
            # Still there: must not be reported again.
            event = await bench.step()
            assert event["stop"]
            for source in sources:
                set_error(ctx, dut, source, 0)
            await bench.until("finish")
            assert bench.errors == expected
            assert await bench.run([HALT]) == []

    simulate(BASELINE, process)


def test_errors_outside_a_run_are_ignored():
    async def process(bench):
        set_error(bench.ctx, bench.dut, 1, 1)
        for _ in range(5):
            assert not (await bench.step())["stop"]
        set_error(bench.ctx, bench.dut, 1, 0)
        assert bench.errors == []
        assert await bench.run([HALT]) == []

    simulate(BASELINE, process)


def test_no_dispatch_after_an_error():
    async def process(bench):
        for delay in range(6):
            await bench.start([LOAD] * 20)
            for _ in range(delay):
                await bench.step()
            set_error(bench.ctx, bench.dut, 0, 1)
            await bench.step()
            set_error(bench.ctx, bench.dut, 0, 0)
            before = len(bench.pushed)
            bench.trace.clear()
            await bench.until("finish")
            assert len(bench.pushed) == before
            assert not any(event["taken"] or event["wants"] for event in bench.trace)

    simulate(BASELINE, process)


def test_start_during_a_run_is_ignored():
    async def process(bench):
        ctx, dut = bench.ctx, bench.dut
        ctx.set(dut.empty, 0)
        ctx.set(dut.blocked, 0)
        await bench.start([HALT])
        ctx.set(dut.start, 1)
        for _ in range(10):
            event = await bench.step()
            assert not event["clear"] and not event["begin"]
        ctx.set(dut.start, 0)
        ctx.set(dut.empty, bench.all)
        await bench.until("finish")

    simulate(BASELINE, process)


@pytest.mark.parametrize("case", ["halt", "queue"])
def test_deadlock(case):
    """Reported when nothing can move for DEADLOCK_CYCLES cycles in a row, not before."""

    async def process(bench):
        ctx, dut = bench.ctx, bench.dut
        ctx.set(dut.empty, 0)
        program = [HALT] if case == "halt" else [LOAD, HALT]
        bench.ready = lambda cycle: 0
        expected = [(ErrorCode.DEADLOCK, Unit.SEQUENCER, ADDRESS)]

        await bench.start(program)
        # Besides: the checks, the register of what blocks, the error, the stop itself.
        assert await bench.until("stop", 100) == DEADLOCK_CYCLES + 4
        await bench.until("finish")
        assert bench.errors == expected

        # A queue that can move, or a busy bus, for one cycle now and then: no deadlock.
        for disturb in (dut.blocked, dut.bus_busy):
            await bench.start(program)
            for _ in range(4):
                for _ in range(DEADLOCK_CYCLES - 2):
                    assert not (await bench.step())["stop"]
                ctx.set(disturb, 1 if disturb is dut.bus_busy else bench.all - 1)
                await bench.step()
                ctx.set(dut.blocked, bench.all)
                ctx.set(dut.bus_busy, 0)
            assert bench.errors == []
            await bench.until("finish", 100)
            assert bench.errors == expected

        # Waiting for the program itself is not a deadlock: the fetch is responsible.
        await bench.start([])
        for _ in range(2 * DEADLOCK_CYCLES):
            event = await bench.step()
            assert event["wants"] and not event["stop"]
        ctx.set(dut.empty, bench.all)
        bench.program = [HALT]
        await bench.until("finish")
        assert bench.errors == []

    simulate(BASELINE, process)


#: Name -> program, and what the bench holds at a level: ways into every state.
BEFORE = {
    "dispatching": ([LOAD] * 9, {}),
    "a full queue": ([LOAD] * 9, {"blocked": 0, "push0.ready": 0}),
    "the end": ([HALT], {}),
    "a busy bus": ([HALT], {"bus_busy": 1}),
    "an error": ([bytes(64)], {"bus_busy": 1}),
    "a stop": ([LOAD, HALT], {"bus_busy": 1, "empty": 0, "abort": 1}),
    "the watchdog": ([LOAD, HALT], {"bus_busy": 1, "empty": 0, "watchdog": 7}),
}


@pytest.mark.parametrize("before", BEFORE)
def test_reset_at_any_time(before):
    """It is idle behind a reset, and the next run goes cycle by cycle as the first one."""
    program, levels = BEFORE[before]

    async def good(bench):
        bench.trace.clear()
        assert await bench.run([LOAD, HALT]) == []
        assert len(bench.pushed) == 1
        return list(bench.trace)

    async def process(bench):
        ctx, dut = bench.ctx, bench.dut
        usual = {"bus_busy": 0, "empty": bench.all, "blocked": bench.all, "watchdog": 0, "abort": 0}
        ready = bench.ready
        first = await good(bench)
        for moment in (*range(6), *range(6, 24, 3)):
            for name, value in levels.items():
                if name == "push0.ready":
                    bench.ready = lambda cycle: 0
                else:
                    ctx.set(getattr(dut, name), value)
            bench.program, bench.position = list(program), 0
            ctx.set(dut.start, 1)
            for _ in range(moment):
                await bench.step()
                ctx.set(dut.start, 0)
            ctx.set(bench.reset, 1)
            await bench.step()
            ctx.set(bench.reset, 0)
            ctx.set(dut.start, 0)
            for name, value in usual.items():
                ctx.set(getattr(dut, name), value)
            bench.ready, bench.errors = ready, []
            for _ in range(3):
                event = await bench.step()
                assert not any(event.values()), f"{event} behind a reset in cycle {moment}"
            assert bench.errors == []
            assert await good(bench) == first, f"behind a reset in cycle {moment}"

    simulate(BASELINE, process)


@pytest.mark.parametrize("latency", [1, 5, 23])
def test_runs_in_a_row_on_a_slow_memory(latency, seed):
    """A run never sees what the one before asked for: programs with garbage behind HALT, without
    HALT, empty, each started in the cycle after the end of the last."""
    config = BASELINE
    rng = random.Random(seed)
    memory = {}
    dut = Control(config)
    fetch = dut.fetch
    finished = []
    beats = 512 // config.axi_data_width
    load = values_of(Opcode.LOAD)

    async def slave(ctx):
        due, cycle = [], 0
        ctx.set(fetch.read.request.ready, 1)
        while True:
            here = bool(due) and due[0][0] <= cycle
            ctx.set(fetch.read.data.valid, here)
            if here:
                _, address, beat = due.pop(0)
                data = memory.get(address, bytes([0xEE] * 64))
                width = config.beat_bytes
                ctx.set(
                    fetch.read.data.payload,
                    {
                        "data": int.from_bytes(data[beat * width :][:width], "little"),
                        "resp": 0,
                        "last": beat == beats - 1,
                    },
                )
            if ctx.get(fetch.read.request.valid):
                address = ctx.get(fetch.read.request.payload.address)
                due += [(cycle + latency, address, beat) for beat in range(beats)]
            await ctx.tick()
            cycle += 1

    async def host(ctx):
        ctx.set(dut.empty, (1 << len(dut.queues)) - 1)
        for number in range(len(dut.queues)):
            ctx.set(getattr(dut, f"push{number}").ready, 1)
        ctx.set(fetch.memory_size, 1 << 20)
        for run in range(12):
            count = rng.randrange(8)
            behind = rng.choice([0, 1, 4, 9])
            halts = rng.random() < 0.7
            base = 0x1000 * run
            memory.clear()
            for n in range(count):
                memory[base + 64 * n] = encode(
                    Opcode.LOAD, **{**load, "dram_address": 1000 * run + n}
                )
            if halts:
                memory[base + 64 * count] = HALT
            size = 64 * (count + (1 + behind if halts else 0)) + rng.choice([0, 63])
            ctx.set(fetch.program_address, base)
            ctx.set(fetch.program_size, size)
            ctx.set(dut.start, 1)
            taken, errors, chunks = [], [], []
            for _ in range(1500):
                if ctx.get(dut.push0.valid):
                    chunks.append(ctx.get(dut.push0.payload))
                if len(chunks) == command_chunks(Opcode.LOAD):
                    bits = sum(chunk << (CHUNK_WIDTH * n) for n, chunk in enumerate(chunks))
                    _, values = decode(bits.to_bytes(COMMAND_BYTES, "little"))
                    taken.append(values["dram_address"])
                    chunks.clear()
                if ctx.get(dut.error.valid):
                    errors.append((ctx.get(dut.error.code), ctx.get(dut.error.address)))
                over = ctx.get(dut.finish)
                await ctx.tick()
                ctx.set(dut.start, 0)
                if over:
                    break
            else:
                raise AssertionError(f"run {run} does not end")
            assert not ctx.get(fetch.busy), f"run {run} leaves a burst behind"
            end = base + 64 * count
            assert errors == ([] if halts else [(ErrorCode.PROGRAM_END, end)]), f"run {run}"
            expected = [1000 * run + n for n in range(count)]
            assert taken == expected, f"run {run}: {taken}, expected {expected}"
            finished.append(run)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(slave, background=True)
    simulator.add_testbench(host)
    simulator.run()
    assert finished == list(range(12))
