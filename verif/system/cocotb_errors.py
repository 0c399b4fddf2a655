"""Faulty programs, resets and bus models on the whole accelerator.

``good.json`` describes a program that is right (see :func:`verif.networks.execute.good_program`);
it must run bit-exactly after everything that happens here.
"""

import itertools
import json
import logging
import os
import random
from pathlib import Path

import cocotb
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES
from hw.isa.packing import unpack
from verif.programs.faulty_batches import batch_faults
from verif.programs.faulty_loops import loop_faults
from verif.programs.faulty_programs import PROGRAM, WINDOW, faults

from .driver import Driver
from .harness import Harness

GOOD = json.loads(Path("good.json").read_text())
CONFIG = AdaGPConfig(**GOOD["config"])
SEED = int(os.environ["ADAGP_SEED"])
TIMEOUT_CYCLES = GOOD["timeout_cycles"]
FAULTS = [*faults(CONFIG), *batch_faults(CONFIG), *loop_faults(CONFIG)]


def check_good(memory: bytes, what: str) -> None:
    """Every output of the good program in ``memory``, byte for byte."""
    expected = Path("good_after.bin").read_bytes()
    for name, offset, size in GOOD["outputs"]:
        want, got = expected[offset : offset + size], memory[offset : offset + size]
        if want != got:
            place = next(i for i in range(size) if want[i] != got[i])
            raise AssertionError(
                f"{what}: {name}, byte {place} of {size}: expected {want[place]:#04x}, "
                f"got {got[place]:#04x}"
            )


async def run_good(harness: Harness, what: str) -> None:
    """The good program runs and stores what it must."""
    await harness.load(Path("good.bin").read_bytes())
    record = await harness.run(
        size=GOOD["size"], program=0, program_size=GOOD["program_size"],
        timeout_cycles=TIMEOUT_CYCLES,
    )  # fmt: skip
    assert record.done and not record.error, f"{what}: {record}"
    assert (record.code, record.unit, record.address) == ("NONE", "NONE", 0), f"{what}: {record}"
    memory = await harness.dump_part(0, GOOD["size"])
    check_good(memory, what)


async def run_fault(harness: Harness, fault) -> None:
    """The faulty program stops with the error that is expected."""
    offset, response = fault.error_window
    size = CONFIG.beat_bytes if response else 0
    for name, value in fault.registers.items():
        await harness.driver.write(name, value)
    harness.memory.set_error(harness.base + offset, size, {3: "decerr"}.get(response, "slverr"))
    await harness.load(bytes(WINDOW))
    await harness.load(fault.bytes, PROGRAM)
    record = await harness.run(
        size=fault.window,
        program=fault.program,
        program_size=len(fault.bytes) if fault.size is None else fault.size,
        timeout_cycles=5000,
    )
    harness.memory.set_error()
    assert record.error and not record.done, f"{fault.name}: {record}"
    actual = (record.code, record.unit)
    expected = (fault.code.name, fault.unit.name)
    assert actual == expected, f"{fault.name}: {actual} at {record.address:#x}, not {expected}"
    if fault.address is not None:
        address = fault.address + (harness.base if fault.in_window else 0)
        assert record.address == address, (
            f"{fault.name}: address {record.address:#x}, not {address:#x}"
        )
    status = await harness.driver.fields("STATUS")
    expected = dict.fromkeys(status, 0) | {"DONE": 1, "ERROR": 1}
    assert status == expected, f"{fault.name}: STATUS {status}"
    harness.memory.check()


@cocotb.test()
async def faulty_programs(dut):
    """Each faulty program twice, the good one after it, never a reset."""
    harness = Harness(dut, CONFIG)
    await harness.reset()
    await run_good(harness, "at first")
    for fault in FAULTS:
        await run_fault(harness, fault)
        await run_fault(harness, fault)
        await run_good(harness, f"after {fault.name}")
        dut._log.info("%s: %s", fault.name, fault.code.name)


@cocotb.test()
async def faults_on_a_slow_memory(dut):
    """The same with pauses and latency: outstanding transactions are completed first."""
    harness = Harness(dut, CONFIG)
    harness.stalls(0.5, latency=40, seed=SEED)
    await harness.reset()
    for fault in FAULTS:
        await run_fault(harness, fault)
    await run_good(harness, "after all faults")


@cocotb.test()
async def broken_in_the_middle(dut):
    """A bad command behind good ones: the run stops with both cores at work on a slow memory, and
    nothing but outputs has been written."""
    harness = Harness(dut, CONFIG)
    rng = random.Random(SEED)
    harness.stalls(0.3, latency=15, seed=SEED)
    await harness.reset()
    image = Path("good.bin").read_bytes()
    size = GOOD["program_size"]
    # A command that is not packed any more takes so many bytes.
    places = [one.begin for one in unpack(image[:size]) if one.begin + COMMAND_BYTES <= size]
    outputs = [range(offset, offset + size) for _, offset, size in GOOD["outputs"]]
    for attempt in range(6):
        index = rng.randrange(1, len(places))
        broken = bytearray(image)
        broken[places[index]] = 0xEE
        await harness.load(bytes(broken))
        record = await harness.run(
            size=GOOD["size"], program=0, program_size=GOOD["program_size"],
            timeout_cycles=TIMEOUT_CYCLES,
        )  # fmt: skip
        what = f"command {index} of {len(places)} is undefined"
        assert (record.code, record.unit) == ("UNDEFINED_COMMAND", "SEQUENCER"), f"{what}: {record}"
        assert record.address == harness.base + places[index], f"{what}: {record}"
        memory = await harness.dump_part(0, GOOD["size"])
        for place in (i for i in range(len(image)) if memory[i] != broken[i]):
            inside = any(place in output for output in outputs)
            assert inside, f"{what}: byte {place:#x} was written"
        harness.memory.check()
        if attempt % 2:
            await run_good(harness, f"after {what}")


@cocotb.test()
async def reset_at_any_time(dut):
    """A reset stops a run wherever it is, also inside bursts; the next run is right."""
    harness = Harness(dut, CONFIG)
    rng = random.Random(SEED)
    harness.stalls(0.3, latency=10, seed=SEED)
    await harness.reset()
    bursts = 0
    for attempt in range(8):
        await harness.load(Path("good.bin").read_bytes())
        await harness.start(size=GOOD["size"], program=0, program_size=GOOD["program_size"])
        await harness.wait(rng.randrange(20, GOOD["cycles"]))
        if attempt % 2:  # in the middle of a burst, reading or writing in turn
            channel = "rw"[attempt // 2 % 2]
            valid, last = f"m_axi_{channel}valid", f"m_axi_{channel}last"
            for _ in range(2000):
                await RisingEdge(dut.clk)
                inside = channel == "w" or not int(dut.ram_rlast.value)
                if channel == "w" and int(getattr(dut, valid).value):
                    bursts += not int(getattr(dut, last).value)
                    break
                if channel == "r" and int(dut.ram_rvalid.value) and inside:
                    bursts += 1
                    break
        await harness.reset(cycles=rng.choice([1, 2, 5]))
        assert not int(dut.irq.value), "interrupt after a reset"
        assert not int(dut.m_axi_arvalid.value), "read request after a reset"
        assert not int(dut.m_axi_awvalid.value), "write request after a reset"
        for register in harness.driver.map:
            if register.counter is None:
                value = await harness.driver.read(register.name)
                assert value == register.reset, f"{register.name} is {value:#x} after a reset"
        await run_good(harness, f"after reset {attempt}")
    assert bursts, "no reset came inside a burst"


class _Master:
    """cocotbext-axi's AXI4-Lite master with the interface that the driver wants."""

    def __init__(self, dut):
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)

    async def read(self, address):
        answer = await self.master.read(address, 4)
        return int.from_bytes(answer.data, "little"), int(answer.resp)

    async def write(self, address, value):
        return int((await self.master.write(address, value.to_bytes(4, "little"))).resp)


@cocotb.test()
@cocotb.parametrize(pause=[0.0, 0.5])
async def independent_bus_models(dut, pause):
    """cocotbext-axi at both bus ports, with pauses on every channel; twice without a reset."""
    harness = Harness(dut, CONFIG)
    logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
    dut.external.value = 1
    ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=1 << 20)
    harness.driver = Driver(CONFIG, _Master(dut))
    rng = random.Random(SEED)
    channels = (
        ram.write_if.aw_channel, ram.write_if.w_channel, ram.write_if.b_channel,
        ram.read_if.ar_channel, ram.read_if.r_channel,
    )  # fmt: skip
    for channel in channels:
        generator = random.Random(rng.random())
        channel.set_pause_generator(generator.random() < pause for _ in itertools.count())
    await harness.reset()
    for attempt in range(2):
        ram.write(harness.base, Path("good.bin").read_bytes())
        record = await harness.run(
            size=GOOD["size"], program=0, program_size=GOOD["program_size"],
            timeout_cycles=4 * TIMEOUT_CYCLES,
        )  # fmt: skip
        assert record.done and not record.error, record
        check_good(ram.read(harness.base, GOOD["size"]), f"run {attempt}")
    dut.external.value = 0
