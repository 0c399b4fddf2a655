"""What the memory bus does to the whole accelerator: answers that nobody waits for, and the end of
the address space.

Runs with the files of :mod:`verif.system.cocotb_errors`, whose good program must be right after
everything that happens here.
"""

import logging
import random
from pathlib import Path

import cocotb
from cocotb.triggers import FallingEdge
from cocotbext.axi import AxiBus, AxiRam
from cocotbext.axi.axi_channels import AxiBTransaction, AxiRTransaction

from hw.bus.axi_mux import axi_id_width
from verif.programs.faulty_addresses import address_space_faults

from .cocotb_errors import CONFIG, GOOD, SEED, TIMEOUT_CYCLES, check_good, run_fault, run_good
from .harness import Harness

#: Cycles from a read to its first beat while the accelerator is reset; more than a reset takes.
_LATENCY = 100
_PROGRAM = {"size": GOOD["size"], "program": 0, "program_size": GOOD["program_size"]}


@cocotb.test()
async def reset_without_the_memory(dut):
    """A reset at any time that the memory does not see: it answers what it was asked for before.
    When it has, the next run is right. (No reset comes between a write's address and its data:
    then the memory would wait for them, see docs/architecture.md.)"""
    harness = Harness(dut, CONFIG)
    rng = random.Random(SEED)
    await harness.reset()
    strays = 0
    for attempt in range(24):
        await harness.load(Path("good.bin").read_bytes())
        harness.memory.set_latency(read=_LATENCY, write=_LATENCY)
        await harness.start(**_PROGRAM)
        await harness.wait(rng.randrange(10, 2 * GOOD["cycles"]))
        while int(dut.wants_data.value) or int(dut.m_axi_awvalid.value):
            await FallingEdge(dut.clk)
        await harness.reset(cycles=rng.choice([1, 2, 5]), keep=True)
        strays += int(dut.owes_answers.value)
        for _ in range(20 * _LATENCY):
            if not int(dut.owes_answers.value):
                break
            await FallingEdge(dut.clk)
        else:
            raise AssertionError(f"reset {attempt}: an answer of the memory is not taken")
        status = await harness.driver.fields("STATUS")
        assert not any(status.values()), f"reset {attempt}: {status}"
        harness.memory.set_latency(read=0, write=0)
        await run_good(harness, f"after reset {attempt}")
    assert strays >= 6, f"only {strays} of 24 resets left something outstanding"


@cocotb.test()
async def answers_that_nobody_waits_for(dut):
    """Of every ID, to reads and to writes: ignored between runs; a run ends with an error. The
    program behind it is right, also one that has been stopped while it read and wrote."""
    harness = Harness(dut, CONFIG)
    logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
    dut.external.value = 1
    ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, size=1 << 20)
    await harness.reset()
    ids = range(1 << axi_id_width(1 + len(CONFIG.cores)))
    owners = {"READ_BUS": 1 + len(CONFIG.cores), "WRITE_BUS": len(CONFIG.cores)}

    async def stray(unit, number):
        if unit == "READ_BUS":
            await ram.read_if.r_channel.send(AxiRTransaction(rid=number, rlast=number & 1))
        else:
            await ram.write_if.b_channel.send(AxiBTransaction(bid=number))

    async def finish(what):
        await harness.interrupt(4 * TIMEOUT_CYCLES)
        record = await harness.record(0, 0, 0.0)
        actual = (record.code, record.unit, record.address)
        assert actual == what, f"{actual}, not {what}"

    async def good(what):
        ram.write(harness.base, Path("good.bin").read_bytes())
        await harness.start(**_PROGRAM)
        await finish(("NONE", "NONE", 0))
        check_good(ram.read(harness.base, GOOD["size"]), what)

    for unit in owners:
        for number in ids:
            await stray(unit, number)
            await harness.wait(4)
        assert not any((await harness.driver.fields("STATUS")).values())
    await good("after answers between runs")
    rng = random.Random(SEED)
    for unit, owned in owners.items():
        for number in ids:
            # An ID that nobody has at any time, the others before they are used: the first burst
            # of a LOAD or STORE needs a command, and this program is still to be fetched.
            unknown = number >= owned
            ram.write(harness.base, Path("good.bin").read_bytes())
            if not unknown:
                ram.read_if.ar_channel.pause = True
            await harness.start(**_PROGRAM)
            await harness.wait(rng.randrange(GOOD["cycles"]) if unknown else 20)
            await stray(unit, number)
            if not unknown:
                await harness.wait(10)
            ram.read_if.ar_channel.pause = False
            await finish(("UNEXPECTED_RESPONSE", unit, number))
        await good(f"after unexpected answers, {unit}")
    dut.external.value = 0


@cocotb.test()
async def end_of_the_address_space(dut):
    """A window of 4 GiB, which reaches beyond the address space: a program is right in it, and its
    last bytes may be used."""
    harness = Harness(dut, CONFIG)
    await harness.reset()
    for fault in address_space_faults(CONFIG, base=harness.base):
        await run_fault(harness, fault)
    await harness.load(Path("good.bin").read_bytes())
    record = await harness.run(**_PROGRAM | {"size": 1 << 32}, timeout_cycles=TIMEOUT_CYCLES)
    assert record.done and not record.error, record
    memory = await harness.dump_part(0, GOOD["size"])
    check_good(memory, "in a window of 4 GiB")
