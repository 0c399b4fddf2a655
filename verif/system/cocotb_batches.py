"""Runs of many batches on the whole accelerator: the host's part, errors, resets.

``batches.json`` holds the configuration; the program is
:class:`verif.programs.batch_programs.BatchProgram`.
"""

import itertools
import json
import os
import random
from pathlib import Path

import cocotb
from cocotb.triggers import RisingEdge

from emulator.batch_loop import BatchLoop
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, Opcode, decode, encode
from verif.programs.batch_programs import PARTS, BatchProgram, part_of
from verif.programs.faulty_programs import dma

from .driver import RegisterAccessError
from .harness import Harness

CONFIG = AdaGPConfig(**json.loads(Path("batches.json").read_text()))
PROGRAM = BatchProgram(config=CONFIG)
SEED = int(os.environ["ADAGP_SEED"])
SCHEDULE = ScheduleConfig(
    warm_up=0, ladder=(Stage(gp=2, bp=1, epochs=1), Stage(gp=1, bp=2, epochs=None))
)
LOOP = BatchLoop(schedule=SCHEDULE, batches=14, epoch_batches=5)
LIMIT = 20_000
#: Cycles without progress that no batch of the program has.
WATCHDOG = 500


class Bench:
    """The accelerator, what memory must hold, and the host's part of a run."""

    def __init__(self, dut):
        self.dut = dut
        self.harness = Harness(dut, CONFIG)
        self.driver = self.harness.driver

    async def begin(self, loop, commands=None, *, ready=0, number=0, watchdog=0):
        """Load everything and start; ``number`` is that of the first batch's inputs."""
        commands = PROGRAM.commands() if commands is None else commands
        self.expected = bytearray(PROGRAM.image(commands))
        self.loop, self.number = loop, number
        await self.harness.load(bytes(self.expected))
        for name, value in loop.registers().items():
            await self.driver.write(name, value)
        if ready:
            for parity in range(2):
                await self.inputs(parity)
        await self.driver.write("BATCHES_READY", ready)
        await self.harness.start(
            size=PROGRAM.size, program=PROGRAM.program, program_size=len(commands),
            watchdog=watchdog,
        )  # fmt: skip

    async def inputs(self, number):
        for offset, data in PROGRAM.changes(number):
            await self.harness.load(data, offset)
            self.expected[offset : offset + len(data)] = data

    async def status(self, **fields):
        """Wait until STATUS says so."""
        for _ in range(LIMIT // 10):
            status = await self.driver.fields("STATUS")
            if fields.items() <= status.items():
                return
        raise AssertionError(f"STATUS is {status}, not {fields}")

    async def batch(self, number):
        """Give inputs to batch ``number`` and let it run; then the accelerator waits."""
        await self.status(WAITING=1, BUSY=1)
        await self.inputs(number)
        await self.driver.write("BATCHES_READY", number + 1)
        await self.harness.interrupt(LIMIT)
        causes = await self.driver.acknowledge()
        assert causes["BATCH"], causes
        PROGRAM.after(self.expected, self.loop.phases()[number], number)
        await self.check(f"batch {number}", done=number + 1)

    async def check(self, what, *, done):
        """Memory and position."""
        memory = await self.harness.dump_part(0, PROGRAM.size)
        wrong = [i for i in range(len(memory)) if memory[i] != self.expected[i]]
        assert not wrong, (
            f"{what}: byte {wrong[0]:#x} is {memory[wrong[0]]:#04x}, not "
            f"{self.expected[wrong[0]]:#04x}; {len(wrong)} are wrong"
        )
        actual = await self.driver.read("BATCHES_DONE")
        assert actual == done, f"{what}: {actual} batches are done, not {done}"
        behind = self.loop.after(done)
        position = await self.driver.read("EPOCH"), await self.driver.read("EPOCH_BATCH")
        assert position == (behind.epoch, behind.epoch_batch), f"{what}: {position}"
        self.harness.memory.check()

    async def ends(self, error=None):
        """The run ends, with ``error`` (code, unit) or without; returns the error's address."""
        await self.status(BUSY=0)
        causes = await self.driver.acknowledge()
        code, unit, address = await self.driver.error()
        expected = error or ("NONE", "NONE")
        assert (code.name, unit.name) == expected, f"{code.name}, {unit.name}, {address:#x}"
        assert causes["ERROR"] == bool(error) and causes["DONE"] != bool(error), causes
        return address - self.harness.base

    async def whole(self, loop):
        """All batches of ``loop``, one after the other."""
        await self.begin(loop)
        for number in range(loop.batches):
            await self.batch(number)
        await self.ends()


async def bench(dut, stalls=0.0):
    result = Bench(dut)
    result.harness.stalls(stalls, latency=round(60 * stalls), seed=SEED)
    await result.harness.reset()
    return result


@cocotb.test()
async def host_lowers_the_number(dut):
    """While the accelerator waits, however long, and while a batch is under way; below what is
    done, too. The next run goes on."""
    tb = await bench(dut)
    rng = random.Random(SEED)
    loop = LOOP
    for count, below in ((3, 0), (0, 0), (4, 2), (1, 0)):
        await tb.begin(loop)
        for number in range(count):
            await tb.batch(number)
        await tb.status(WAITING=1)
        await tb.harness.wait(rng.choice([10, 1000]))
        await tb.status(WAITING=1)
        await tb.driver.write("BATCHES", count - below)
        await tb.ends()
        await tb.check(f"{count} batches", done=count)
        loop = loop.after(count)
    for done in (1, 3, 5):
        await tb.begin(LOOP, ready=done - 1)
        for number in range(done - 1):
            PROGRAM.after(tb.expected, LOOP.phases()[number], number)
        await tb.status(WAITING=1)
        await tb.driver.write("BATCHES_READY", done)
        await tb.driver.write("BATCHES", done)
        await tb.ends()
        PROGRAM.after(tb.expected, LOOP.phases()[done - 1], done - 1)
        await tb.check(f"the last of {done}", done=done)


@cocotb.test()
async def registers_during_a_run(dut):
    """What is locked, what the host may change and what it sees."""
    tb = await bench(dut)
    await tb.begin(LOOP)
    for number in range(3):
        await tb.batch(number)
    await tb.status(WAITING=1)
    names = ("EPOCH_BATCHES", "WARM_UP", "EPOCH", "EPOCH_BATCH", *(f"STAGE{n}" for n in range(4)))
    for name in names:
        before = await tb.driver.read(name)
        try:
            await tb.driver.write(name, before ^ 1)
        except RegisterAccessError:
            assert await tb.driver.read(name) == before
        else:
            raise AssertionError(f"{name} may be written during a run")
    await tb.driver.write("COEFFICIENT7", 0x40490FDB)
    assert await tb.driver.read("COEFFICIENT7") == 0x40490FDB
    waited = await tb.driver.read("BATCH_WAIT")
    await tb.harness.wait(500)
    again = await tb.driver.read("BATCH_WAIT")
    assert 500 <= again - waited < 600, again - waited
    await tb.driver.write("BATCHES", 4)
    await tb.batch(3)
    await tb.ends()
    counters = await tb.driver.counters()
    gp = [phase for phase in LOOP.phases()[:4] if not phase.backpropagates]
    assert counters["BATCHES_GP"] == len(gp)
    for core in CONFIG.cores:
        states = ("VECTORS", *(f"STALL_{n}" for n in ("WEIGHTS", "BUFFER", "HAZARD", "COMMAND")))
        total = sum(counters[f"CORE{core.index}_{state}"] for state in states)
        assert total + counters["BATCH_WAIT"] == counters["CYCLES"], counters


@cocotb.test()
@cocotb.parametrize(stalls=[0.0, 0.5])
async def without_waiting(dut, stalls):
    """All inputs are in place: the accelerator never waits, and the last inputs count."""
    tb = await bench(dut, stalls)
    for count in (1, 2, 9):
        await tb.begin(LOOP.after(LOOP.batches - count), ready=count)
        await tb.ends()
        for number, phase in enumerate(tb.loop.phases()):
            PROGRAM.after(tb.expected, phase, number)
        await tb.check(f"{count} batches", done=count)
        assert await tb.driver.read("BATCH_WAIT") == 0
    cycles = await tb.driver.read("CYCLES")
    dut._log.info("%d batches in %d cycles", count, cycles)


@cocotb.test()
@cocotb.parametrize(stalls=[0.0, 0.5])
async def errors_in_a_batch(dut, stalls):
    """Bus errors, an undefined command and a deadlock in every part: batches before count, the one
    that fails does not, and the next run goes on with it, then to the end."""
    tb = await bench(dut, stalls)
    waits = [dma(Opcode.LOAD, CONFIG, words=1, wait=2)]
    bad = {"UNDEFINED_COMMAND": [bytes(COMMAND_BYTES)], "DEADLOCK": waits}
    undefined = bad["UNDEFINED_COMMAND"][0]
    numbers = [part_of(phase, number) for number, phase in enumerate(LOOP.phases())]
    for part, code in itertools.product(PARTS, ("WRITE_SLVERR", *bad)):
        failing = numbers.index(part)
        unit = "CORE0_STORE" if code == "WRITE_SLVERR" else "SEQUENCER"
        parts = {part: PROGRAM.part(part, extra=bad.get(code, ()))}
        commands = PROGRAM.commands(parts=parts)
        await tb.begin(LOOP, commands)
        for number in range(failing):
            await tb.batch(number)
        await tb.status(WAITING=1)
        place = PROGRAM.trace + 2 * PARTS.index(part) * PROGRAM.word
        if code == "WRITE_SLVERR":
            tb.harness.memory.set_error(tb.harness.base + place, PROGRAM.word, "slverr")
        await tb.inputs(failing)
        await tb.driver.write("BATCHES_READY", failing + 1)
        address = await tb.ends((code, unit))
        if code == "UNDEFINED_COMMAND":
            places = range(0, len(commands), COMMAND_BYTES)
            (wrong,) = (n for n in places if commands[n : n + COMMAND_BYTES] == undefined)
            assert address == PROGRAM.program + wrong
        tb.harness.memory.set_error()
        memory = await tb.harness.dump_part(0, PROGRAM.size)
        tb.expected[place : place + 2 * PROGRAM.word] = memory[place : place + 2 * PROGRAM.word]
        await tb.check(f"{code} in {part}", done=failing)
        await tb.whole(LOOP.after(failing))


@cocotb.test()
async def overflow_at_the_end_of_a_batch(dut):
    """The last signal of a batch is the token too many: the batch has failed and does not count,
    whenever the error comes. The run that begins with it goes on."""
    tb = await bench(dut)
    numbers = [part_of(phase, number) for number, phase in enumerate(LOOP.phases())]
    for part in ("bp_even", "gp_odd"):
        failing = numbers.index(part)
        token = dma(Opcode.LOAD, CONFIG, words=1, signal=4, buffer_address=20,
                    dram_address=PROGRAM.marks)  # fmt: skip
        tokens = [token] * 15
        *body, store = PROGRAM.part(part, extra=tokens)
        fields = decode(store)[1]
        body.append(encode(Opcode.STORE, **fields | {"signal": 4}))
        await tb.begin(LOOP, PROGRAM.commands(parts={part: body}))
        for number in range(failing):
            await tb.batch(number)
        await tb.status(WAITING=1)
        await tb.inputs(failing)
        await tb.driver.write("BATCHES_READY", failing + 1)
        await tb.status(BUSY=0)
        causes = await tb.driver.acknowledge()
        assert causes["ERROR"] and not causes["BATCH"], causes
        code, unit, semaphore = await tb.driver.error()
        assert (code.name, unit.name, semaphore) == ("SEMAPHORE_OVERFLOW", "SEQUENCER", 2)
        # What it stores is there: the signal comes behind.
        PROGRAM.after(tb.expected, LOOP.phases()[failing], failing)
        await tb.check(f"overflow in {part}", done=failing)
        await tb.whole(LOOP.after(failing))


@cocotb.test()
@cocotb.parametrize(stop_at=[0, 1, 4])
async def stop_while_waiting(dut, stop_at):
    """STOP ends a run that waits for its host, whose watchdog does not: batches done are done, and
    the next run goes on."""
    tb = await bench(dut)
    await tb.begin(LOOP, watchdog=WATCHDOG)
    for number in range(stop_at):
        await tb.batch(number)
        await tb.harness.wait(2 * WATCHDOG)
    await tb.status(WAITING=1)
    await tb.harness.wait(2 * WATCHDOG)
    await tb.status(WAITING=1, BUSY=1)
    await tb.driver.stop()
    assert await tb.driver.wait(3) == "the program was stopped by CONTROL.STOP"
    assert (await tb.driver.fields("STATUS"))["WAITING"] == 0
    causes = await tb.driver.acknowledge()
    assert causes == dict.fromkeys(causes, 0) | {"STOPPED": 1}, causes
    waited = await tb.driver.read("BATCH_WAIT")
    await tb.harness.wait(50)
    assert await tb.driver.read("BATCH_WAIT") == waited, "it still counts"
    await tb.check(f"stopped behind {stop_at}", done=stop_at)
    await tb.whole(LOOP.after(stop_at))


@cocotb.test()
async def reset_while_waiting(dut):
    """Registers have their values after reset, then everything works."""
    tb = await bench(dut)
    for count in (0, 2):
        await tb.begin(LOOP)
        for number in range(count):
            await tb.batch(number)
        await tb.status(WAITING=1)
        await tb.harness.reset()
        for register in tb.driver.map:
            if register.counter is None:
                value = await tb.driver.read(register.name)
                assert value == register.reset, f"{register.name} is {value:#x} after a reset"
        await tb.whole(LOOP)


@cocotb.test()
async def one_request_at_a_time(dut):
    """No read is out when the fetch starts again: nothing of the old stream reaches the new one."""
    tb = await bench(dut, 0.3)
    out = largest = 0

    async def watch():
        nonlocal out, largest
        while True:
            await RisingEdge(dut.clk)
            out += int(dut.m_axi_arvalid.value and dut.ram_arready.value)
            out -= int(dut.ram_rvalid.value and dut.m_axi_rready.value and dut.ram_rlast.value)
            largest = max(largest, out)

    watching = cocotb.start_soon(watch())
    await tb.begin(LOOP)
    for number in range(4):
        await tb.batch(number)
        await tb.status(WAITING=1)
        await tb.harness.wait(200)
        assert out == 0, f"{out} reads are out while the accelerator waits"
    watching.cancel()
    assert largest > 1, "never two reads at a time"
    await tb.driver.write("BATCHES", 4)
    await tb.ends()
