"""CONTROL.STOP and the watchdog on the whole accelerator, also with a memory that does not answer.

Works with the files of :mod:`verif.system.cocotb_errors`; the good program runs bit-exactly behind
everything, without a reset.
"""

import random
from pathlib import Path

import cocotb
from cocotb.triggers import RisingEdge

from hw.isa.error_codes import ErrorCode
from verif.programs.endless_programs import endless_loops, endless_programs, slow_programs
from verif.programs.faulty_programs import PROGRAM, WINDOW

from .cocotb_errors import CONFIG, GOOD, SEED, TIMEOUT_CYCLES, check_good, run_good
from .harness import Harness

#: A memory that does not answer within any test.
NEVER = 0xFFFF
#: Cycles that an end takes at most on a memory without latency: owed beats, then the clear.
END_CYCLES = 300
WATCHDOG = 400
STOPPED = "the program was stopped by CONTROL.STOP"


async def begin(harness: Harness, program: bytes, watchdog: int = 0) -> None:
    """Start a program in an empty window."""
    await harness.load(bytes(WINDOW))
    await harness.load(program, PROGRAM)
    await harness.start(size=WINDOW, program=PROGRAM, program_size=len(program), watchdog=watchdog)


async def ended(harness: Harness, what: str, *, cause: str, draining: int = 0) -> None:
    """The run is over for this reason, nothing counts any more, and nothing is requested."""
    driver, dut = harness.driver, harness.dut
    status = await driver.fields("STATUS")
    expected = {"DONE": 1, "STOPPED": int(cause == "STOPPED"), "ERROR": int(cause == "ERROR")}
    expected = dict.fromkeys(status, 0) | expected | {"DRAINING": draining}
    assert status == expected, f"{what}: STATUS {status}, not {expected}"
    causes = await driver.acknowledge()
    assert causes == dict.fromkeys(causes, 0) | {cause: 1}, f"{what}: {causes}"
    before = await driver.counters()
    for _ in range(100):
        await RisingEdge(dut.clk)
        if not draining:
            requests = int(dut.m_axi_arvalid.value), int(dut.m_axi_awvalid.value)
            assert requests == (0, 0), f"{what}: requests {requests} behind the end"
    counters = await driver.counters()
    assert counters == before, f"{what}: counters go on"
    assert not int(dut.irq.value), f"{what}: a second interrupt"
    harness.memory.check()


async def stop(harness: Harness, what: str, limit: int = END_CYCLES) -> None:
    """End the run under way; it ends within ``limit`` cycles, without an error."""
    await harness.driver.stop()
    await harness.interrupt(limit)
    assert await harness.driver.wait(1) == STOPPED, what
    assert await harness.driver.error() == (0, 0, 0), what
    await ended(harness, what, cause="STOPPED")


@cocotb.test()
async def endless_programs_are_stopped(dut):
    """Whatever is at work, after a short and a long time."""
    harness = Harness(dut, CONFIG)
    rng = random.Random(SEED)
    await harness.reset()
    for program in endless_programs(CONFIG):
        for cycles in (rng.randrange(1, 200), rng.randrange(600, 1200)):
            await begin(harness, program.bytes)
            await harness.wait(cycles)
            what = f"{program.name}, stopped after {cycles} cycles"
            assert (await harness.driver.fields("STATUS"))["BUSY"], what
            await stop(harness, what)
        await run_good(harness, f"after {program.name}")


@cocotb.test()
async def endless_loops_of_commands_are_stopped(dut):
    """Something moves in them, so that the watchdog does not end them."""
    harness = Harness(dut, CONFIG)
    rng = random.Random(SEED)
    await harness.reset()
    for program in endless_loops(CONFIG):
        await begin(harness, program.bytes, WATCHDOG)
        cycles = rng.randrange(3, 5) * WATCHDOG
        await harness.wait(cycles)
        what = f"{program.name}, stopped after {cycles} cycles"
        assert (await harness.driver.fields("STATUS"))["BUSY"], what
        await stop(harness, what)
        assert (await harness.driver.counters())["COMMANDS"] > 40, what
        await run_good(harness, f"after {program.name}")


@cocotb.test()
async def endless_programs_and_the_watchdog(dut):
    """It ends them with an error that names the engine, not before its time."""
    harness = Harness(dut, CONFIG)
    driver = harness.driver
    await harness.reset()
    for program in endless_programs(CONFIG):
        await begin(harness, program.bytes, WATCHDOG)
        await harness.wait(WATCHDOG - 50)
        assert (await driver.fields("STATUS"))["BUSY"], f"{program.name}: too early"
        await harness.interrupt(WATCHDOG + END_CYCLES + 400)
        code, unit, address = await driver.error()
        assert code is ErrorCode.WATCHDOG and unit in program.units, f"{program.name}: {unit!r}"
        offset = address - harness.base - PROGRAM
        assert 0 <= offset < len(program.bytes) and not offset % 64, f"{address:#x}"
        assert "ended the program with WATCHDOG" in await driver.wait(1)
        await ended(harness, program.name, cause="ERROR")
    await run_good(harness, "after all")


@cocotb.test()
async def the_watchdog_names_who_is_slow(dut):
    """Each unit that does not work for ever, alone, and LOAD and STORE on a memory that does not
    answer any more. With a longer limit the others are right."""
    harness = Harness(dut, CONFIG)
    driver = harness.driver
    await harness.reset()
    for program in slow_programs(CONFIG):
        (unit,) = program.units
        silent = unit.name.endswith(("LOAD", "STORE"))
        await begin(harness, program.bytes, WATCHDOG)
        await harness.wait(100)  # the program has been fetched
        if silent:
            harness.stalls(latency=NEVER)
        await harness.interrupt(3 * WATCHDOG + END_CYCLES)
        code, blamed, _ = await driver.error()
        assert (code, blamed) == (ErrorCode.WATCHDOG, unit), f"{program.name}: {code!r}, {blamed!r}"
        await ended(harness, program.name, cause="ERROR", draining=int(silent))
        harness.stalls()
        await harness.wait(END_CYCLES)
    await run_good(harness, "after all")


@cocotb.test()
@cocotb.parametrize(stalls=[0.0, 0.5])
async def stopped_anywhere(dut, stalls):
    """The good program, stopped at any time, on a fast and a slow memory; no word that it has not
    written itself changes, and it runs again."""
    harness = Harness(dut, CONFIG)
    rng = random.Random(SEED)
    harness.stalls(stalls, latency=round(60 * stalls), seed=SEED)
    await harness.reset()
    image = Path("good.bin").read_bytes()
    inside = set()
    for _, offset, size in GOOD["outputs"]:
        inside.update(range(offset, offset + size))
    for attempt in range(8):
        await harness.load(image)
        await harness.start(size=GOOD["size"], program=0, program_size=GOOD["program_size"])
        cycles = rng.randrange(1, GOOD["cycles"] // 2) if attempt else 1
        await harness.wait(cycles)
        await stop(harness, f"stopped after {cycles} cycles", END_CYCLES + round(9000 * stalls))
        memory = await harness.dump_part(0, GOOD["size"])
        wrong = [i for i in range(len(image)) if memory[i] != image[i] and i not in inside]
        assert not wrong, f"stopped after {cycles} cycles: byte {wrong[0]:#x} was written"
        if attempt % 4 == 3:
            await run_good(harness, f"after a stop after {cycles} cycles")


@cocotb.test()
async def silent_memory_and_stop(dut):
    """STOP waits for the bus, a second one does not; a start waits instead, and late answers reach
    no other run."""
    harness = Harness(dut, CONFIG)
    driver = harness.driver
    await harness.reset()
    image = Path("good.bin").read_bytes()
    for cycles, starts in ((30, 0), (150, 1), (400, 2)):
        what = f"a memory that is silent after {cycles} cycles"
        await harness.load(image)
        await harness.start(size=GOOD["size"], program=0, program_size=GOOD["program_size"])
        await harness.wait(cycles)
        harness.stalls(latency=NEVER)
        await harness.wait(200)
        await driver.stop()
        await harness.wait(1000)
        assert (await driver.fields("STATUS"))["BUSY"], f"{what}: STOP did not wait"
        await driver.stop()
        await harness.interrupt(10)
        assert await driver.wait(1) == f"{STOPPED}; the bus still owes answers", what
        await ended(harness, what, cause="STOPPED", draining=1)
        for _ in range(starts):
            # These never begin.
            await harness.start(size=GOOD["size"], program=0, program_size=GOOD["program_size"])
            await harness.wait(300)
            status = await driver.fields("STATUS")
            assert status["BUSY"] and status["DRAINING"], f"{what}: {status}"
            await driver.stop()
            await harness.interrupt(10)
            await ended(harness, what, cause="STOPPED", draining=1)
        # The answers come, or a start waits for them.
        await harness.load(image)
        await harness.start(size=GOOD["size"], program=0, program_size=GOOD["program_size"])
        await harness.wait(300)
        assert (await driver.fields("STATUS"))["BUSY"], what
        harness.stalls()
        await harness.interrupt(TIMEOUT_CYCLES)
        await ended(harness, what, cause="DONE")
        memory = await harness.dump_part(0, GOOD["size"])
        check_good(memory, what)


@cocotb.test()
async def silent_memory_and_watchdog(dut):
    """A memory that stops answering ends the run with an error, in the given time; so it does each
    run that is started before it answers again."""
    harness = Harness(dut, CONFIG)
    driver = harness.driver
    rng = random.Random(SEED)
    await harness.reset()
    units = set()
    common = {"size": GOOD["size"], "program": 0, "program_size": GOOD["program_size"]}
    for attempt in range(8):
        cycles = 40 if not attempt else rng.randrange(GOOD["cycles"] // 2)
        what = f"a memory that is silent after {cycles} cycles"
        await harness.load(Path("good.bin").read_bytes())
        await harness.start(**common, watchdog=WATCHDOG)
        await harness.wait(cycles)
        harness.stalls(latency=NEVER)
        for _ in range(1 + attempt % 2):
            # Once to the error, once more in the stop state.
            await harness.interrupt(GOOD["cycles"] + 2 * WATCHDOG + END_CYCLES)
            code, unit, _ = await driver.error()
            units.add(unit.name.split("_")[-1])
            assert code is ErrorCode.WATCHDOG, f"{what}: {code.name}"
            await ended(harness, what, cause="ERROR", draining=1)
            await harness.start(**common, watchdog=WATCHDOG)
        await harness.interrupt(GOOD["cycles"] + 2 * WATCHDOG + END_CYCLES)
        await ended(harness, what, cause="ERROR", draining=1)
        harness.stalls()
        await harness.wait(END_CYCLES)
        assert not (await driver.fields("STATUS"))["DRAINING"], what
        await run_good(harness, what)
    assert units <= {"FETCH", "LOAD", "STORE"} and len(units) > 1, units


@cocotb.test()
async def a_good_program_under_the_watchdog(dut):
    """It is not disturbed, on a memory whose latency is just below the limit."""
    harness = Harness(dut, CONFIG)
    await harness.reset()
    for latency in (0, WATCHDOG - 100):
        harness.stalls(0.3 if latency else 0.0, latency=latency, seed=SEED)
        await harness.load(Path("good.bin").read_bytes())
        record = await harness.run(
            size=GOOD["size"], program=0, program_size=GOOD["program_size"],
            timeout_cycles=20 * TIMEOUT_CYCLES, watchdog=WATCHDOG,
        )  # fmt: skip
        assert record.done and not record.error and not record.stopped, record
        memory = await harness.dump_part(0, GOOD["size"])
        check_good(memory, f"latency {latency}")
