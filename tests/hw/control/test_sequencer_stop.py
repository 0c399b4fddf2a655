"""CONTROL.STOP and the watchdog: how they end a run, and a bus that does not answer.

Covers: hw/control/sequencer.py.
"""

import pytest

from hw.config import make_config
from hw.control.sequencer import DEADLOCK_CYCLES
from hw.isa.encoding import Opcode, encode
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit
from verif.blocks.control.sequencer_bench import ADDRESS, simulate, values_of

BASELINE = make_config(variant="baseline", preset="tiny")
MAX = make_config(variant="max", preset="tiny")
HALT = encode(Opcode.HALT)
LOAD = encode(Opcode.LOAD, **values_of(Opcode.LOAD))


async def steps(bench, count, **levels):
    """Cycles with the same inputs; the events in each."""
    for name, value in levels.items():
        bench.ctx.set(getattr(bench.dut, name), value)
    return [await bench.step() for _ in range(count)]


async def pulse(bench, name):
    """One cycle with an input of the sequencer high; what happens in it."""
    (event,) = await steps(bench, 1, **{name: 1})
    bench.ctx.set(getattr(bench.dut, name), 0)
    return event


async def run_for_ever(bench):
    """Start a run that does not end by itself, and is no deadlock."""
    await steps(bench, 0, blocked=0, empty=0, bus_busy=0, watchdog=0)
    await bench.start([LOAD, HALT])
    events = await steps(bench, 40)
    assert not any(event["stop"] for event in events) and len(bench.pushed) == 1


async def still_good(bench):
    """Without a reset, a run works."""
    await steps(bench, 0, blocked=bench.all, empty=bench.all, bus_busy=0, watchdog=0)
    assert await bench.run([LOAD, HALT]) == []
    assert len(bench.pushed) == 1 and not bench.trace[-1]["stopped"]


def set_error(bench, value, source=1):
    bench.ctx.set(bench.dut.errors[source].valid, value)
    bench.ctx.set(bench.dut.errors[source].code, ErrorCode.READ_DECERR)


@pytest.mark.parametrize("busy", [0, 1, 30])
def test_stop_ends_a_run(busy):
    """It waits for the bus like every end, and what fails meanwhile is no error of the run."""

    async def process(bench):
        for delay in range(8):
            await steps(bench, 0, blocked=0, empty=0, bus_busy=int(busy > 0))
            await bench.start([LOAD] * 50)
            await steps(bench, delay)
            await pulse(bench, "abort")
            bench.trace.clear()
            assert await bench.until("stop") <= 2
            pushed = len(bench.pushed)
            set_error(bench, 1)
            events = await steps(bench, busy)
            assert all(event["stop"] and not event["finish"] for event in events)
            set_error(bench, 0)
            bench.ctx.set(bench.dut.bus_busy, 0)
            await bench.until("finish", limit=8)
            assert bench.trace[-1]["stopped"] and not bench.trace[-1]["draining"]
            assert bench.errors == [] and len(bench.pushed) == pushed
            events = await steps(bench, 5)
            assert not any(event["finish"] or event["clear"] for event in events)
        await still_good(bench)

    simulate(BASELINE, process)


def test_stop_right_behind_the_start():
    """From the cycle of the start on, nothing is lost: the run ends before a command is taken."""

    async def process(bench):
        for delay in range(4):
            bench.program, bench.pushed, bench.errors = [LOAD, HALT], [], []
            bench.position = 0
            bench.chunks.clear()
            bench.trace.clear()
            await pulse(bench, "start")
            await steps(bench, delay)
            await pulse(bench, "abort")
            await bench.until("finish", limit=12)
            assert bench.trace[-1]["stopped"] and bench.pushed == [], (delay, bench.errors)
        await still_good(bench)

    simulate(BASELINE, process)


def test_stop_outside_a_run_does_nothing():
    async def process(bench):
        for delay in range(4):
            await pulse(bench, "abort")
            events = await steps(bench, delay)
            assert not any(value for event in events for value in event.values())
            await still_good(bench)
            # In the cycles around the end, too.
            bench.trace.clear()
            await bench.start([HALT])
            await bench.until("clear")
            await steps(bench, 1, abort=int(delay == 0))
            await steps(bench, 1, abort=int(delay == 1))
            await steps(bench, 3, abort=0)
            assert sum(event["finish"] for event in bench.trace) == 1
        await still_good(bench)

    simulate(BASELINE, process)


@pytest.mark.parametrize("other", ["halt", "error"])
def test_who_wins(other):
    """STOP takes effect in the cycle after it: HALT or an error in that cycle or earlier decide."""

    async def process(bench):
        decided = []
        for offset in range(-4, 5):
            await steps(bench, 0, blocked=0, empty=0)
            await bench.start([HALT])
            bench.trace.clear()
            for cycle in range(12):
                bench.ctx.set(bench.dut.abort, int(cycle == 5 + offset))
                if other == "halt":
                    bench.ctx.set(bench.dut.empty, bench.all if cycle >= 5 else 0)
                else:
                    set_error(bench, int(cycle == 5))
                if (await bench.step())["stop"]:
                    break
            bench.ctx.set(bench.dut.abort, 0)
            set_error(bench, 0)
            await bench.until("finish")
            stopped = bench.trace[-1]["stopped"]
            await steps(bench, 6)
            failed = other == "error" and not stopped
            assert [code for code, *_ in bench.errors] == [ErrorCode.READ_DECERR] * failed, offset
            decided.append(stopped)
        assert decided == [1] * 3 + [0] * 6
        await still_good(bench)

    simulate(BASELINE, process)


async def hang(bench, how):
    """Bring a run into the stop state with a bus that does not answer."""
    await steps(bench, 0, bus_busy=0)
    if how == "stop":
        await run_for_ever(bench)
        await pulse(bench, "abort")
    else:
        await steps(bench, 0, empty=bench.all)
        await bench.start([HALT if how == "halt" else bytes(64)])
    bench.ctx.set(bench.dut.bus_busy, 1)
    await bench.until("stop")
    events = await steps(bench, 200)
    assert all(event["stop"] and not event["finish"] for event in events), how


ENDS = {"stop": 1, "halt": 0, "error": 0}


@pytest.mark.parametrize("how", ENDS)
def test_stop_again_does_not_wait_for_the_bus(how):
    """The end that was decided is reported, and the sequencer waits for the bus on its own; a
    start waits with it, and hears nothing of what belongs to the run before."""

    async def process(bench):
        for waits in (0, 1, 30):
            await hang(bench, how)
            errors = list(bench.errors)
            await pulse(bench, "abort")
            bench.trace.clear()
            assert await bench.until("finish") == 1
            assert bench.trace[-1]["stopped"] == ENDS[how] and bench.errors == errors
            events = [await pulse(bench, "abort"), *await steps(bench, 30)]
            assert all(e["stop"] and e["draining"] and not e["finish"] for e in events)
            # Drained without a start.
            events = await steps(bench, 10, bus_busy=0)
            assert sum(event["clear"] for event in events) == 1
            assert not any(event["finish"] or event["begin"] for event in events)
            assert not events[-1]["draining"]
            await still_good(bench)
            # Drained behind a start.
            await hang(bench, how)
            await pulse(bench, "abort")
            await bench.until("finish")
            bench.program, bench.pushed, bench.errors, bench.position = [HALT], [], [], 0
            await steps(bench, 0, empty=bench.all)
            await pulse(bench, "start")
            set_error(bench, 1)
            events = await steps(bench, waits)
            assert all(e["stop"] and e["draining"] and not e["begin"] for e in events)
            set_error(bench, 0)
            bench.ctx.set(bench.dut.bus_busy, 0)
            bench.trace.clear()
            await bench.until("finish")
            assert [event["clear"] for event in bench.trace].count(1) == 2
            assert [event["begin"] for event in bench.trace].count(1) == 1
            assert not bench.trace[-1]["stopped"] and bench.errors == []
        await still_good(bench)

    simulate(BASELINE, process)


@pytest.mark.parametrize("delay", range(8))
def test_a_start_in_any_cycle_of_the_draining(delay):
    """Also in those in which the bus falls silent, and that of the clear."""

    async def process(bench):
        await hang(bench, "stop")
        await pulse(bench, "abort")
        await bench.until("finish")
        await steps(bench, delay, bus_busy=0)
        bench.program, bench.pushed, bench.position = [LOAD, HALT], [], 0
        await steps(bench, 0, empty=bench.all, blocked=bench.all)
        bench.trace.clear()
        await pulse(bench, "start")
        await bench.until("finish")
        assert sum(event["begin"] for event in bench.trace) == 1
        assert len(bench.pushed) == 1 and bench.errors == [] and not bench.trace[-1]["stopped"]
        await still_good(bench)

    simulate(BASELINE, process)


def test_stop_of_a_run_that_waits_for_the_bus():
    async def process(bench):
        for _ in range(2):
            await hang(bench, "halt")
            await pulse(bench, "abort")
            await bench.until("finish")
            for _ in range(3):
                await pulse(bench, "start")
                events = await steps(bench, 10)
                assert not any(event["finish"] or event["begin"] for event in events)
                await pulse(bench, "abort")
                bench.trace.clear()
                assert await bench.until("finish") == 1
                assert bench.trace[-1]["stopped"]
            events = await steps(bench, 20, bus_busy=0)
            assert not any(event["finish"] or event["begin"] for event in events)
        assert bench.errors == []
        await still_good(bench)

    simulate(BASELINE, process)


LIMIT = 50


def test_watchdog_ends_a_run():
    """And names the engine that works, else who waits for the bus; a good run is not disturbed."""

    async def process(bench):
        dut = bench.dut
        compute = [
            (1 << n, Unit[f"CORE{core}_{opcode.name}"])
            for n, (core, opcode) in enumerate(dut.queues)
            if opcode not in (Opcode.LOAD, Opcode.STORE)
        ]
        transfers = bench.all - sum(bit for bit, _ in compute)
        masters = [(1 << n, unit) for n, unit in enumerate(dut.masters)]
        cases = [(bit | transfers, busy, unit) for bit, unit in compute for busy in (0, 1)]
        cases += [(transfers, bit, unit) for bit, unit in masters]
        cases += [(transfers, (1 << len(masters)) - 1, Unit.FETCH), (0, 0, Unit.SEQUENCER)]
        assert len({unit for *_, unit in cases}) == len(compute) + len(masters) + 1
        cases = [(*case, bench.all if case[:2] == (0, 0) else 0) for case in cases]
        # Nobody works: then it is a MATMUL, if that is not done.
        late = [n for n, (_, opcode) in enumerate(dut.queues) if opcode == Opcode.MATMUL]
        for number in range(bench.queues):
            blamed = [Unit[f"CORE{dut.queues[n][0]}_MATMUL"] for n in late if n >= number]
            cases.append((0, 0, [*blamed, Unit.SEQUENCER][0], (1 << number) - 1))
        for working, bus_busy, unit, empty in cases:
            await steps(bench, 0, blocked=0, empty=empty, watchdog=LIMIT, bus_busy=bus_busy)
            bench.ctx.set(dut.working, working)
            await bench.start([LOAD])
            await bench.until("dispatched")
            assert LIMIT < await bench.until("stop", LIMIT + 10) <= LIMIT + 3
            bench.ctx.set(dut.bus_busy, 0)
            await bench.until("finish")
            assert bench.errors == [(ErrorCode.WATCHDOG, unit, ADDRESS)], (working, bus_busy, empty)
            assert not bench.trace[-1]["stopped"]
        await still_good(bench)

    simulate(MAX, process)


def test_progress_holds_the_watchdog_off():
    """A command that ends, a beat, a wait for the host (all ``progress``), or a dispatch."""

    async def process(bench):
        await steps(bench, 0, blocked=0, empty=0, watchdog=LIMIT)
        await bench.start([LOAD] * 4)
        for _ in range(5):
            events = await steps(bench, LIMIT - 1, progress=0)
            assert not any(event["stop"] for event in events)
            await pulse(bench, "progress")
        bench.program = []
        for _ in range(5):
            await steps(bench, LIMIT - 12)
            bench.program = [LOAD]
            await bench.until("dispatched", limit=10)
        assert bench.errors == []
        await bench.until("stop", limit=LIMIT + 3)
        await bench.until("finish")
        assert [code for code, *_ in bench.errors] == [ErrorCode.WATCHDOG]
        await still_good(bench)

    simulate(BASELINE, process)


def test_no_watchdog_after_reset():
    async def process(bench):
        await run_for_ever(bench)
        events = await steps(bench, 20 * DEADLOCK_CYCLES, bus_busy=1)
        # All 32 bits of it count.
        events += await steps(bench, 1, watchdog=(1 << 31) + 7)
        events += [await pulse(bench, "progress"), *await steps(bench, 40)]
        assert not any(event["stop"] for event in events)

    simulate(BASELINE, process)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("limit", [1, 2, LIMIT])
def test_watchdog_in_the_stop_state(how, limit):
    """A bus that moves nothing for so long is not waited for. That is the error of a run that has
    none and was not stopped."""

    async def process(bench):
        await hang(bench, how)
        errors = list(bench.errors)
        await pulse(bench, "progress")
        bench.ctx.set(bench.dut.watchdog, limit)
        for _ in range(3 * (limit > 2)):
            events = await steps(bench, limit - 1)
            assert not any(event["finish"] for event in events)
            await pulse(bench, "progress")
        assert limit <= await bench.until("finish", limit=limit + 3)
        late = [(ErrorCode.WATCHDOG, Unit.FETCH, ADDRESS)]
        assert bench.errors == (late if how == "halt" else errors)
        assert bench.trace[-1]["stopped"] == ENDS[how]
        # A run that is started now waits as long, and ends with the error.
        bench.errors, bench.program = [], []
        bench.ctx.set(bench.dut.bus_busy, 1 << 2)
        for _ in range(2):
            await pulse(bench, "start")
            assert limit <= await bench.until("finish", limit=limit + 3)
            assert not bench.trace[-1]["stopped"]
        assert [error[:2] for error in bench.errors] == [(ErrorCode.WATCHDOG, Unit.CORE0_STORE)] * 2
        events = await steps(bench, 10, bus_busy=0)
        assert not any(event["finish"] or event["begin"] for event in events)
        await still_good(bench)

    simulate(BASELINE, process)
