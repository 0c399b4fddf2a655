"""What the tests of the DMA engines share: the bench around the design, and command models."""

import itertools
import json
import logging
import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBus, AxiRam, AxiResp

from emulator.transfers import transfer_rows
from hw.config import make_config
from hw.isa.encoding import Opcode, pack_engine_fields
from hw.isa.error_codes import ErrorCode

from .dma_bench import DmaBench

MEMORY_BYTES = 1 << 17
TIMEOUT_CYCLES = 20_000

config = make_config(**json.loads(os.environ["DMA_CONFIG"]))
core = config.cores[0]
GRANULE = config.granule_bytes
WORD = core.word_bytes
DEPTH = DmaBench(config).depth
ROWS_MATTER = WORD > GRANULE


class Bench:
    """The design, its memory and the models of both."""

    def __init__(self, dut):
        self.dut = dut
        self.random = random.Random(int(os.environ["ADAGP_SEED"]))
        dut._log.info("seed %s", os.environ["ADAGP_SEED"])
        Clock(dut.clk, 10, unit="ns").start()
        logging.getLogger(f"cocotb.{dut._name}.axi_").setLevel(logging.WARNING)
        self.ram = AxiRam(AxiBus.from_prefix(dut, "axi_"), dut.clk, dut.rst, size=MEMORY_BYTES)
        self.base = 8 * GRANULE
        self.size = MEMORY_BYTES - self.base - 4096

    async def reset(self):
        dut = self.dut
        for name in ("load", "store"):
            getattr(dut, f"{name}__valid").value = 0
            getattr(dut, f"{name}__payload").value = 0
        for name in ("stop", "access_write", "access_address", "access_data"):
            getattr(dut, name).value = 0
        dut.memory_base.value = self.base
        dut.memory_size.value = self.size
        dut.rst.value = 1
        await ClockCycles(dut.clk, 4)
        dut.rst.value = 0
        await RisingEdge(dut.clk)

    def stalls(self, probability):
        """Pause every AXI channel and the buffer with ``probability``; 0 for none."""
        ram = self.ram
        channels = (
            ram.write_if.aw_channel, ram.write_if.w_channel, ram.write_if.b_channel,
            ram.read_if.ar_channel, ram.read_if.r_channel,
        )  # fmt: skip
        for channel in channels:
            if probability:
                generator = random.Random(self.random.random())
                channel.set_pause_generator(
                    generator.random() < probability for _ in itertools.count()
                )
            else:
                channel.clear_pause_generator()
                channel.pause = False
        self.dut.stall.value = int(256 * probability)

    async def poke(self, first, words):
        self.dut.access_write.value = 1
        for index, word in enumerate(words):
            self.dut.access_address.value = first + index
            self.dut.access_data.value = int.from_bytes(word, "little")
            await RisingEdge(self.dut.clk)
        self.dut.access_write.value = 0

    async def peek(self, first, count):
        words = []
        for index in range(first, first + count):
            self.dut.access_address.value = index
            await ClockCycles(self.dut.clk, 2)
            await RisingEdge(self.dut.clk)
            words.append(int(self.dut.access_result.value).to_bytes(WORD, "little"))
        return words

    async def issue(self, name, command):
        """Hand a command over; returns when the engine has accepted it."""
        valid, ready = getattr(self.dut, f"{name}__valid"), getattr(self.dut, f"{name}__ready")
        getattr(self.dut, f"{name}__payload").value = pack(command)
        valid.value = 1
        for _ in range(TIMEOUT_CYCLES):
            await RisingEdge(self.dut.clk)
            if ready.value:
                break
        else:
            raise AssertionError(f"{name} does not accept {command}")
        valid.value = 0

    async def until(self, condition, what):
        """Wait for ``condition()``; returns the cycles it took."""
        for cycle in range(TIMEOUT_CYCLES):
            await RisingEdge(self.dut.clk)
            if condition():
                return cycle + 1
        raise AssertionError(f"no {what} in {TIMEOUT_CYCLES} cycles")

    async def execute(self, name, commands):
        """Run commands to the end; returns the cycles from the first acceptance on."""
        done = getattr(self.dut, f"{name}_done")
        target = int(done.value) + len(commands)

        async def feed():
            for command in commands:
                await self.issue(name, command)

        cocotb.start_soon(feed())
        cycles = await self.until(lambda: int(done.value) == target, f"{name} done")
        await RisingEdge(self.dut.clk)
        assert not getattr(self.dut, f"{name}_busy").value, f"{name} busy after the last done"
        self.no_error(name)
        return cycles

    def no_error(self, name):
        if getattr(self.dut, f"{name}_failed").value:
            code = ErrorCode(int(getattr(self.dut, f"{name}_code").value))
            place = int(getattr(self.dut, f"{name}_address").value)
            raise AssertionError(f"{name} reports {code.name} at {place:#x}")

    def random_bytes(self, count):
        return self.random.randbytes(count)


def pack(command):
    """The fields of a LOAD or STORE as the payload of the engine's command port."""
    return pack_engine_fields(Opcode.LOAD, command)


def rows_of(command):
    """Yield (offset in the window, bytes, buffer word) of each row, or part, per buffer word."""
    for row, words in zip(*transfer_rows(command, WORD), strict=True):
        for part, word in enumerate(words):
            offsets = row[part * WORD :][:WORD]
            yield int(offsets[0]), len(offsets), int(word)


def random_command(rng, *, words, window, address=0, overlap=True):
    """A command of about ``words`` buffer words with ragged rows, runs and strides."""
    while True:
        row = GRANULE * rng.choice(
            [1, rng.randint(1, 3), rng.randint(1, 2 * WORD // GRANULE), rng.randint(1, 40)]
        )
        per_row = -(-row // WORD)
        rows = rng.randint(1, max(1, min(words // per_row, rng.choice([1, 3, 40]))))
        runs = rng.randint(1, max(1, min(12, words // (per_row * rows))))
        run = row * rows
        stride = GRANULE * rng.randint(0, 40) + (0 if overlap and rng.random() < 0.2 else run)
        if rng.random() < 0.2:
            stride = run
        extent = (runs - 1) * stride + run
        if extent > window or runs * rows * per_row > 3 * words:
            continue
        start = GRANULE * rng.randint(0, (window - extent) // GRANULE)
        if rng.random() < 0.3:  # near a 4 KiB boundary
            start = min(start // 4096 * 4096 + 4096 - GRANULE * rng.randint(1, 8), start)
            start = max(start, 0)
        return {
            "buffer_address": address,
            "dram_address": start,
            "run_bytes": run,
            "run_count": runs,
            "run_stride": stride,
            "row_bytes": row,
        }


def compare(expected, actual, what):
    for index, (want, got) in enumerate(zip(expected, actual, strict=True)):
        assert want == got, f"{what} {index}: expected {want.hex()}, got {got.hex()}"


def check_bursts(bench):
    """Watch the address channels for illegal bursts for the rest of the test."""
    dut = bench.dut
    seen = []

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            for channel in ("ar", "aw"):
                if (
                    getattr(dut, f"axi__{channel}valid").value
                    and getattr(dut, f"axi__{channel}ready").value
                ):
                    address = int(getattr(dut, f"axi__{channel}addr").value)
                    beats = int(getattr(dut, f"axi__{channel}len").value) + 1
                    end = address + beats * config.beat_bytes - 1
                    where = f"{channel} burst {address:#x} of {beats} beats"
                    assert address % config.beat_bytes == 0, where
                    assert address >> 12 == end >> 12, f"{where} crosses 4 KiB"
                    assert beats <= config.axi_burst_beats, where
                    assert int(getattr(dut, f"axi__{channel}id").value) == 1, where
                    assert int(getattr(dut, f"axi__{channel}burst").value) == 1, where
                    seen.append(beats)

    cocotb.start_soon(watch())
    return seen


def plain(**fields):
    row = 2 * WORD
    return {
        "buffer_address": 0,
        "dram_address": 0,
        "run_bytes": 4 * row,
        "run_count": 3,
        "run_stride": 6 * row,
        "row_bytes": row,
        **fields,
    }


def bad_commands(bench):
    """(command, code, address) of commands that must be refused."""
    base, usual = bench.base, plain()
    cases = [
        (plain(run_bytes=0), ErrorCode.ILLEGAL_FIELD, base),
        (plain(run_count=0), ErrorCode.ILLEGAL_FIELD, base),
        (plain(row_bytes=0, dram_address=GRANULE), ErrorCode.ILLEGAL_FIELD, base + GRANULE),
        (plain(dram_address=bench.size), ErrorCode.MEMORY_WINDOW, base + bench.size),
        (
            plain(dram_address=bench.size - usual["run_bytes"] + GRANULE, run_count=1),
            ErrorCode.MEMORY_WINDOW,
            base + bench.size - usual["run_bytes"] + GRANULE,
        ),
        (
            plain(run_stride=(1 << 32) - GRANULE, dram_address=2 * GRANULE),
            ErrorCode.MEMORY_WINDOW,
            (base + 2 * GRANULE + (1 << 32) - GRANULE) % (1 << config.axi_address_width),
        ),
        (
            plain(run_stride=bench.size - usual["run_bytes"] // 2 // GRANULE * GRANULE),
            ErrorCode.MEMORY_WINDOW,
            base + bench.size - usual["run_bytes"] // 2 // GRANULE * GRANULE,
        ),
    ]
    if GRANULE > 1:
        cases += [
            (plain(dram_address=1), ErrorCode.UNALIGNED_ADDRESS, base + 1),
            (plain(run_stride=GRANULE + 1), ErrorCode.UNALIGNED_ADDRESS, base),
            (plain(run_bytes=GRANULE // 2), ErrorCode.UNALIGNED_ADDRESS, base),
            (plain(row_bytes=GRANULE + GRANULE // 2), ErrorCode.UNALIGNED_ADDRESS, base),
        ]
    if ROWS_MATTER:
        cut = usual["run_bytes"] - GRANULE
        cases += [
            (plain(run_bytes=cut), ErrorCode.ILLEGAL_FIELD, 7),
            (plain(run_bytes=WORD, run_stride=WORD), ErrorCode.ILLEGAL_FIELD, None),
            # Rows whose length needs its highest bit.
            (plain(row_bytes=usual["row_bytes"] + (1 << 31)), ErrorCode.ILLEGAL_FIELD, None),
        ]
    return cases


async def expect_error(bench, name, code, address, what):
    dut = bench.dut
    failed, busy = getattr(dut, f"{name}_failed"), getattr(dut, f"{name}_busy")
    await bench.until(lambda: failed.value, f"error of {what}")
    await bench.until(lambda: not busy.value, f"end of busy after {what}")
    got = ErrorCode(int(getattr(dut, f"{name}_code").value))
    place = int(getattr(dut, f"{name}_address").value)
    assert got == code, f"{what}: expected {code.name}, got {got.name} at {place:#x}"
    if address is not None:
        assert place == address, f"{what}: expected address {address:#x}, got {place:#x}"
    requests = []

    async def watch():
        for _ in range(30):
            await RisingEdge(dut.clk)
            if dut.axi__arvalid.value or dut.axi__awvalid.value:
                requests.append(True)

    await watch()
    assert not requests, f"{what}: a request after the end"
    assert int(getattr(dut, f"{name}_errors").value) == 1, f"{what}: more than one error"


async def works(bench, name):
    """The next command after a reset does what it should."""
    await bench.reset()
    await transfer(bench, name, plain())


async def transfer(bench, name, command):
    """A command of a few words, whose every byte is checked; the memory repeats every MEMORY_BYTES
    in the address space."""
    place = {start: (bench.base + start) % MEMORY_BYTES for start, _, _ in rows_of(command)}
    if name == "load":
        image = bench.random_bytes(MEMORY_BYTES)
        bench.ram.write(0, image)
        await bench.execute("load", [command])
        expected = [image[place[s] :][:n].ljust(WORD, b"\0") for s, n, _ in rows_of(command)]
        compare(expected, await bench.peek(0, len(expected)), f"{command}: word")
    else:
        count = len(list(rows_of(command)))
        words = [bench.random_bytes(WORD) for _ in range(count)]
        await bench.poke(0, words)
        await bench.execute("store", [command])
        got = [bench.ram.read(place[s], n) for s, n, _ in rows_of(command)]
        compare([words[w][:n] for _, n, w in rows_of(command)], got, f"{command}: row")


async def inject(bench, name, target, response, command):
    """Run ``command`` with its ``target``-th burst answered by ``response``; its address."""
    load = name == "load"
    interface = bench.ram.read_if if load else bench.ram.write_if
    channel = interface.r_channel if load else interface.b_channel
    access, field = ("_read", "rresp") if load else ("_write", "bresp")
    block = (1 << (config.axi_burst_beats.bit_length() - 1)) * config.beat_bytes
    first = bench.base + command["dram_address"]
    place = first // block * block + target * block if target else first
    place = place // config.beat_bytes * config.beat_bytes
    end = (place // block + 1) * block
    original, send = getattr(interface, access), channel.send

    async def refuse(address, *arguments):
        if place <= address < end:
            raise ValueError("refused")
        return await original(address, *arguments)

    async def answer(item):
        if getattr(item, field) == AxiResp.SLVERR:
            setattr(item, field, AxiResp(response))
        await send(item)

    setattr(interface, access, refuse)
    channel.send = answer
    await bench.issue(name, command)
    failed = getattr(bench.dut, f"{name}_failed")
    await bench.until(lambda: failed.value, "error")
    setattr(interface, access, original)
    channel.send = send
    return place
