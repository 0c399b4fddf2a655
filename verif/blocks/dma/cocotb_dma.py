"""LOAD and STORE through AXI4 against a byte-level model; the memory is cocotbext-axi's."""

import cocotb
from cocotb.triggers import ClockCycles

from hw.isa.error_codes import ErrorCode

from .dma_support import (
    DEPTH,
    GRANULE,
    MEMORY_BYTES,
    WORD,
    Bench,
    bad_commands,
    check_bursts,
    compare,
    config,
    expect_error,
    inject,
    plain,
    random_command,
    rows_of,
    transfer,
    works,
)


@cocotb.test()
async def load_random(dut):
    """Random LOADs, several in a row, under different stalls."""
    bench = Bench(dut)
    bench.stalls(0)
    await bench.reset()
    seen = check_bursts(bench)
    image = bench.random_bytes(MEMORY_BYTES)
    bench.ram.write(0, image)
    for probability in (0, 0.3, 0.7):
        bench.stalls(probability)
        for _ in range(3):
            commands, address = [], 0
            for _ in range(4):
                command = random_command(bench.random, words=60, window=bench.size, address=address)
                commands.append(command)
                address = max(word for _, _, word in rows_of(command)) + 1
            noise = [bench.random_bytes(WORD) for _ in range(address + 1)]
            await bench.poke(0, noise)
            await bench.execute("load", commands)
            expected = list(noise)
            for command in commands:
                for start, count, word in rows_of(command):
                    at = bench.base + start
                    expected[word] = image[at : at + count].ljust(WORD, b"\0")
            compare(expected, await bench.peek(0, address + 1), f"after {commands}: word")
    assert max(seen) > 1, "no burst had more than one beat"


@cocotb.test()
async def store_random(dut):
    """Random STOREs, several in a row; every byte around them must stay."""
    bench = Bench(dut)
    bench.stalls(0)
    await bench.reset()
    check_bursts(bench)
    for probability in (0, 0.3, 0.7):
        bench.stalls(probability)
        for _ in range(3):
            image = bytearray(bench.random_bytes(MEMORY_BYTES))
            bench.ram.write(0, bytes(image))
            commands, address = [], 0
            for _ in range(4):
                command = random_command(
                    bench.random, words=60, window=bench.size, address=address, overlap=False
                )
                commands.append(command)
                address = max(word for _, _, word in rows_of(command)) + 1
            words = [bench.random_bytes(WORD) for _ in range(address)]
            await bench.poke(0, words)
            await bench.execute("store", commands)
            for command in commands:
                for start, count, word in rows_of(command):
                    at = bench.base + start
                    image[at : at + count] = words[word][:count]
            actual = bench.ram.read(0, MEMORY_BYTES)
            if actual != image:
                at = next(i for i in range(MEMORY_BYTES) if actual[i] != image[i])
                raise AssertionError(
                    f"after {commands}: byte {at:#x} (window {at - bench.base:#x}): "
                    f"expected {image[at]:#04x}, got {actual[at]:#04x}"
                )


@cocotb.test()
async def both_at_once(dut):
    """A LOAD and a STORE at the same time, from and to different places."""
    bench = Bench(dut)
    bench.stalls(0.2)
    await bench.reset()
    half = bench.size // 2 // GRANULE * GRANULE
    image = bench.random_bytes(MEMORY_BYTES)
    bench.ram.write(0, image)
    load = random_command(bench.random, words=200, window=half)
    store = random_command(bench.random, words=200, window=half, address=DEPTH // 2, overlap=False)
    store["dram_address"] += half
    count = max(word for _, _, word in rows_of(store)) + 1 - DEPTH // 2
    words = [bench.random_bytes(WORD) for _ in range(count)]
    await bench.poke(DEPTH // 2, words)
    task = cocotb.start_soon(bench.execute("store", [store]))
    await bench.execute("load", [load])
    await task
    expected = [
        image[bench.base + start : bench.base + start + size].ljust(WORD, b"\0")
        for start, size, _ in rows_of(load)
    ]
    compare(expected, await bench.peek(0, len(expected)), f"{load}: word")
    for start, size, word in rows_of(store):
        got = bench.ram.read(bench.base + start, size)
        want = words[word - DEPTH // 2][:size]
        assert got == want, f"{store}: at {start:#x}: expected {want.hex()}, got {got.hex()}"


@cocotb.test()
async def bad_fields(dut):
    """Every check of a command, in both engines."""
    bench = Bench(dut)
    bench.stalls(0)
    await bench.reset()
    for name in ("load", "store"):
        for command, code, address in bad_commands(bench):
            await bench.issue(name, command)
            await expect_error(bench, name, code, address, f"{name} {command}")
            await bench.reset()
        await works(bench, name)


@cocotb.test()
async def ends_of_window_and_address_space(dut):
    """The last byte of either may be used, the granule behind it not; a window may be 4 GiB long,
    and reach beyond the address space, whose end is then what counts."""
    bench = Bench(dut)
    bench.stalls(0)
    await bench.reset()
    usual = bench.base, bench.size
    top = 1 << config.axi_address_width
    length = 6 * WORD
    run = {"run_bytes": length, "row_bytes": WORD}
    for base, size in ((top - 0x2000, 1 << 32), (top - 0x2000, 0x2000), (0, 1 << 32)):
        bench.base, bench.size = base, size
        end = min(top - base, size)
        # (fields, offset of the run that is refused)
        late = {"run_count": 2, "run_stride": length}
        bad = [
            ({"dram_address": end - length + GRANULE}, end - length + GRANULE),
            ({"dram_address": end - GRANULE}, end - GRANULE),
            ({"dram_address": end - 2 * length + GRANULE, **late}, end - length + GRANULE),
            ({"dram_address": end - length, **late}, end),
        ]
        if end < 1 << 32:
            bad.append(({"dram_address": end}, end))
        for name in ("load", "store"):
            await bench.reset()
            good = plain(**run, dram_address=end - length, run_count=1)
            await transfer(bench, name, good)
            good = plain(**run, dram_address=end - 2 * length, **late)
            await transfer(bench, name, good)
            for fields, place in bad:
                command = plain(**run, **{"run_count": 1, **fields})
                await bench.issue(name, command)
                await expect_error(
                    bench, name, ErrorCode.MEMORY_WINDOW, (base + place) % top,
                    f"{name} {command}, window {base:#x} of {size:#x}",
                )  # fmt: skip
                await bench.reset()
    bench.base, bench.size = usual
    for name in ("load", "store"):
        await works(bench, name)


@cocotb.test()
async def error_responses(dut):
    """Answers other than OKAY in the first or a later burst; stalls while the rest drains."""
    bench = Bench(dut)
    bench.stalls(0.3)
    await bench.reset()
    length = 6 * config.axi_burst_beats * config.beat_bytes
    row = GRANULE * 4
    length = -(-length // row) * row
    command = plain(dram_address=3 * GRANULE, run_bytes=length, run_stride=length, row_bytes=row)
    for name in ("load", "store"):
        for response in (1, 2, 3):
            for target in (5,) if response == 1 else (0, 1, 5):
                hit = await inject(bench, name, target, response, command)
                code = {
                    ("load", 1): ErrorCode.READ_SLVERR,
                    ("store", 1): ErrorCode.WRITE_SLVERR,
                    ("load", 2): ErrorCode.READ_SLVERR,
                    ("load", 3): ErrorCode.READ_DECERR,
                    ("store", 2): ErrorCode.WRITE_SLVERR,
                    ("store", 3): ErrorCode.WRITE_DECERR,
                }[name, response]
                await expect_error(bench, name, code, hit, f"{name} burst {target}")
                await bench.reset()
        bench.stalls(0)
        await works(bench, name)
        bench.stalls(0.3)


@cocotb.test()
async def stopped(dut):
    """``stop`` at any moment: what is under way ends, nothing follows, the next start works."""
    bench = Bench(dut)
    bench.stalls(0)
    await bench.reset()
    length = 8 * config.axi_burst_beats * config.beat_bytes
    length = -(-length // (2 * WORD)) * 2 * WORD
    command = plain(dram_address=GRANULE, run_bytes=length, run_stride=length)
    for name in ("load", "store"):
        for _ in range(8):
            words = [bench.random_bytes(WORD) for _ in rows_of(command)]
            await bench.poke(0, words)
            old = bench.random_bytes(MEMORY_BYTES)
            bench.ram.write(0, old)
            bench.stalls(bench.random.choice([0, 0.3, 0.6]))
            await bench.issue(name, command)
            await ClockCycles(dut.clk, bench.random.randint(1, 60))
            dut.stop.value = 1
            busy = getattr(dut, f"{name}_busy")
            await bench.until(lambda busy=busy: not busy.value, "end of busy after stop")
            before = int(dut.beats.value)
            await ClockCycles(dut.clk, 20)
            assert not dut.axi__arvalid.value, "a read request after the stop"
            assert not dut.axi__awvalid.value, "a write request after the stop"
            assert int(dut.beats.value) == before, "beats after the stop"
            bench.no_error(name)
            # Every byte is the old one or, if a STORE came so far, the right new one.
            new = bytearray(old)
            if name == "store":
                for start, count, word in rows_of(command):
                    new[bench.base + start : bench.base + start + count] = words[word][:count]
            actual = bench.ram.read(0, MEMORY_BYTES)
            if actual not in (old, bytes(new)):
                for at, choice in enumerate(zip(actual, old, new, strict=True)):
                    assert choice[0] in choice[1:], (
                        f"byte {at:#x}: {choice[0]:#04x}, neither the old {choice[1]:#04x} "
                        f"nor the new {choice[2]:#04x}"
                    )
            bench.stalls(0)
            await works(bench, name)
