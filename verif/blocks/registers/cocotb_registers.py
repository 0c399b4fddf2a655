"""cocotb tests of :class:`hw.registers.file.RegisterFile` through an AXI4-Lite master.

Expected values come from the register description alone.
"""

import random

import cocotb
from cocotb.triggers import FallingEdge
from cocotbext.axi import AxiResp

from hw.registers.map import ADDRESS_WIDTH, ErrorCode, Unit
from hw.registers.model import Access

from .register_bench import (
    CONFIG,
    HARDWARE_REGISTERS,
    LOCKED_REGISTERS,
    MAP,
    UPDATED_REGISTERS,
    bench,
    check_counters,
    one_run,
)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_values(dut):
    tb = await bench(dut)
    for register in MAP:
        await tb.expect(register.name, register.reset)
    await tb.expect("ID", 0x41444147)
    assert not dut.irq.value
    assert not dut.busy.value


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def writes_reach_the_hardware(dut):
    tb = await bench(dut)
    expected = {register.name: register.reset for register in MAP}
    for value in (0xFFFFFFFF, 0, 0xA5A5A5A5, *(random.getrandbits(32) for _ in range(5))):
        for name in (*HARDWARE_REGISTERS, "INTERRUPT_ENABLE"):
            # Neighbours must keep their values, so each register gets its own.
            value = value * 0x9E3779B1 % (1 << 32) if value not in (0, 0xFFFFFFFF) else value
            await tb.write(name, value)
            expected[name] = value & sum(f.mask for f in MAP[name].fields)
        for name, wanted in expected.items():
            await tb.expect(name, wanted)
        pairs = {
            "MEM_BASE": ("MEM_BASE_LO", "MEM_BASE_HI"),
            "MEM_SIZE": ("MEM_SIZE", "MEM_SIZE_HI"),
        }
        for name, (low, high) in pairs.items():
            assert int(getattr(dut, name.lower()).value) == expected[low] | expected[high] << 32, (
                name
            )
        for name in set(HARDWARE_REGISTERS).difference(*pairs.values()):
            assert int(getattr(dut, name.lower()).value) == expected[name], name


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def byte_strobes(dut):
    tb = await bench(dut)
    await tb.write("MEM_SIZE", 0x11223344)
    offset = MAP["MEM_SIZE"].offset
    await tb.master.write(offset + 1, b"\xaa")
    await tb.expect("MEM_SIZE", 0x1122AA44)
    await tb.master.write(offset + 2, b"\xbb\xcc")
    await tb.expect("MEM_SIZE", 0xCCBBAA44)
    await tb.raw_write("MEM_SIZE", 0x99999999, 0b1000)
    await tb.expect("MEM_SIZE", 0x99BBAA44)
    await tb.pulse(core0_flags=31)
    await tb.raw_write("CORE0_FLAGS", 0xFFFFFFFF, 0b1110)
    await tb.expect("CORE0_FLAGS", 31)
    await tb.raw_write("CORE0_FLAGS", 0xFFFFFFFF, 0b0001)
    await tb.expect("CORE0_FLAGS", 0)
    await tb.raw_write("CONTROL", 0xFFFFFFFF, 0b1110)
    await tb.cycles(2)
    assert not dut.busy.value, "a strobe for another byte started a run"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def refused_accesses(dut):
    tb = await bench(dut)
    for register in MAP:
        if not register.writable:
            await tb.write(register.name, 0xFFFFFFFF, AxiResp.SLVERR)
            await tb.expect(register.name, register.reset)
    defined = {register.offset for register in MAP}
    undefined = [o for o in range(0, 1 << ADDRESS_WIDTH, 4) if o not in defined]
    for offset in (*random.sample(undefined, 20), undefined[0], undefined[-1]):
        await tb.write(offset, 0xFFFFFFFF, AxiResp.DECERR)
        assert await tb.read(offset, AxiResp.DECERR) == 0
    assert not dut.busy.value


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def flags_stick_until_cleared(dut):
    tb = await bench(dut)
    for core in CONFIG.cores:
        name = f"CORE{core.index}_FLAGS"
        state = 0
        for _ in range(10):
            events, clear = random.randrange(32), random.randrange(32)
            await tb.pulse(**{name.lower(): events})
            state |= events
            await tb.expect(name, state)
            await tb.write(name, clear)
            state &= ~clear
            await tb.expect(name, state)
        # Set and cleared in the same cycle: it stays set.
        getattr(dut, name.lower()).value = 31
        await tb.write(name, 31)
        getattr(dut, name.lower()).value = 0
        await tb.expect(name, 31)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(density=[0.3, 1], keep_reading=[False, True])
async def counters_count_their_events(dut, density, keep_reading):
    tb = await bench(dut)
    for cycles in (300, 2000, 1, 0):  # each run begins at zero
        counts = await one_run(tb, cycles=cycles, density=density, keep_reading=keep_reading)
        await check_counters(tb, counts)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def only_its_own_event_counts(dut):
    tb = await bench(dut)
    for name, width in MAP.events.items():
        await tb.write("CONTROL", 1)
        for _ in range(3):
            await tb.pulse(**{f"events_{name}": (1 << width) - 1})
        await tb.pulse(finish=1)
        for counter in MAP.counters[1:]:
            expected = 3 * ((1 << width) - 1) * counter.step if counter.event == name else 0
            actual = await tb.counter(counter.name)
            assert actual == expected, f"event {name}: {counter.name} is {actual}, not {expected}"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def start_is_one_cycle_and_cycles_ends_at_the_interrupt(dut):
    tb = await bench(dut)
    await tb.write("INTERRUPT_ENABLE", 3)
    for length in (1, 2, 50):
        starts = busy = 0
        write = cocotb.start_soon(tb.write("CONTROL", 1))
        for _ in range(200):
            await FallingEdge(dut.clk)
            starts += int(dut.start.value)
            busy += int(dut.busy.value)
            dut.finish.value = busy == length
            if dut.irq.value:
                break
        dut.finish.value = 0
        await write
        assert starts == 1
        assert busy == length
        assert await tb.counter("CYCLES") == length
        await tb.expect("STATUS", 2)
        await tb.write("INTERRUPT_STATUS", 1)
        await tb.cycles(2)
        assert not dut.irq.value


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def locked_while_busy(dut):
    tb = await bench(dut)
    for name in HARDWARE_REGISTERS:
        await tb.write(name, 0x12345000)
    before = {name: await tb.read(name) for name in HARDWARE_REGISTERS}
    await tb.write("CONTROL", 1)
    unlocked = set(HARDWARE_REGISTERS) - set(LOCKED_REGISTERS)
    assert unlocked == {"BATCHES", "BATCHES_READY"}
    for name in (*LOCKED_REGISTERS, "CONTROL"):
        await tb.write(name, 0xFFFFFFFF, AxiResp.SLVERR)
    for name, value in before.items():
        await tb.expect(name, value)
    for name in ("INTERRUPT_ENABLE", *unlocked):
        await tb.write(name, 1)
        await tb.expect(name, 1)
    # While a BATCH waits for the host, coefficients may be written and nothing else.
    dut.waiting.value = 1
    between = [name for name in LOCKED_REGISTERS if MAP[name].between_batches]
    assert between == [f"COEFFICIENT{number}" for number in range(8)]
    for name in LOCKED_REGISTERS:
        resp = AxiResp.OKAY if name in between else AxiResp.SLVERR
        await tb.write(name, 0x00ABC000, resp)
        await tb.expect(name, 0x00ABC000 if name in between else before[name])
    dut.waiting.value = 0
    await tb.cycles(1)
    for name in between:
        await tb.write(name, 0xFFFFFFFF, AxiResp.SLVERR)
        await tb.expect(name, 0x00ABC000)
    await tb.pulse(finish=1)
    await tb.write("MEM_SIZE", 5)
    await tb.expect("MEM_SIZE", 5)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def start_and_stop(dut):
    """STOP is a strobe of one cycle during a run, and nothing outside one; START is refused during
    a run, and takes the whole write with it."""
    tb = await bench(dut)
    START, STOP = 1, 2
    pulses = 0

    async def count():
        nonlocal pulses
        while True:
            await FallingEdge(dut.clk)
            pulses += int(dut.abort.value)

    cocotb.start_soon(count())
    await tb.write("INTERRUPT_ENABLE", 8)
    await tb.write("CONTROL", STOP)
    await tb.cycles(3)
    await tb.expect("STATUS", 0)
    assert not pulses and not dut.busy.value, "STOP outside a run"
    await tb.write("CONTROL", START | STOP)
    await tb.cycles(3)
    assert dut.busy.value and not pulses, "START and STOP in one write start a run"
    for number in (1, 2):
        await tb.write("CONTROL", START, AxiResp.SLVERR)
        await tb.write("CONTROL", START | STOP, AxiResp.SLVERR)
        await tb.cycles(3)
        assert pulses == number - 1
        await tb.write("CONTROL", STOP)
        await tb.cycles(3)
        assert pulses == number
    await tb.expect("CONTROL", 0)
    await tb.expect("STATUS", 1)
    assert not dut.irq.value
    await tb.pulse(finish=1, stopped=1)
    assert dut.irq.value
    await tb.expect("STATUS", 0b10010)
    await tb.expect("INTERRUPT_STATUS", 8)
    await tb.expect("ERROR_CODE", 0)
    dut.draining.value = 1
    await tb.expect("STATUS", 0b110010)
    # The next run begins clean, whatever its end.
    await tb.write("CONTROL", START)
    await tb.expect("STATUS", 0b100001)
    dut.draining.value = 0
    await tb.pulse(finish=1)
    await tb.expect("STATUS", 2)
    await tb.expect("INTERRUPT_STATUS", 9)
    await tb.write("INTERRUPT_STATUS", 8)
    await tb.cycles(2)
    assert not dut.irq.value and pulses == 2


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def interrupts_and_errors(dut):
    tb = await bench(dut)
    address = 0xFEDCBA9876543210
    error = (ErrorCode.READ_SLVERR, Unit.CORE0_LOAD, address)
    await one_run(tb, cycles=10, density=0, error=error)
    await tb.expect("STATUS", 6)
    await tb.expect("INTERRUPT_STATUS", 2)
    await tb.expect("ERROR_CODE", ErrorCode.READ_SLVERR)
    await tb.expect("ERROR_UNIT", Unit.CORE0_LOAD)
    await tb.expect("ERROR_ADDRESS_LO", address & 0xFFFFFFFF)
    await tb.expect("ERROR_ADDRESS_HI", address >> 32)
    assert not dut.irq.value, "the interrupt is not enabled"
    await tb.write("INTERRUPT_ENABLE", 1)
    await tb.cycles(1)
    assert not dut.irq.value, "another cause is enabled"
    await tb.write("INTERRUPT_ENABLE", 2)
    await tb.cycles(1)
    assert dut.irq.value

    # The next run starts clean; the cause stays until it is cleared.
    await one_run(tb, cycles=10, density=0)
    await tb.expect("STATUS", 2)
    for name in ("ERROR_CODE", "ERROR_UNIT", "ERROR_ADDRESS_LO", "ERROR_ADDRESS_HI"):
        await tb.expect(name, 0)
    await tb.expect("INTERRUPT_STATUS", 3)
    assert dut.irq.value
    await tb.write("INTERRUPT_STATUS", 2)
    await tb.cycles(1)
    assert not dut.irq.value
    await tb.expect("INTERRUPT_STATUS", 1)

    # Outside a run, nothing counts as an error or as an end.
    await tb.write("INTERRUPT_STATUS", 3)
    await tb.pulse(error_valid=1, error_code=3)
    await tb.pulse(finish=1)
    await tb.expect("STATUS", 2)
    await tb.expect("ERROR_CODE", 0)
    await tb.expect("INTERRUPT_STATUS", 0)

    # Every bit of what an error says.
    other = address ^ (1 << 64) - 1
    await one_run(tb, cycles=10, density=0, error=(0xFF, 0xFF, other))
    await tb.expect("ERROR_CODE", 0xFF)
    await tb.expect("ERROR_UNIT", 0xFF)
    await tb.expect("ERROR_ADDRESS_LO", other & 0xFFFFFFFF)
    await tb.expect("ERROR_ADDRESS_HI", other >> 32)
    await one_run(tb, cycles=10, density=0)
    await tb.expect("ERROR_CODE", 0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def batches(dut):
    """What the hardware tells between batches."""
    tb = await bench(dut)
    await tb.write("INTERRUPT_ENABLE", 4)
    for name in UPDATED_REGISTERS:
        (field,) = MAP[name].fields
        for value in (0, (1 << field.width) - 1, random.getrandbits(field.width)):
            port = name.lower()
            await tb.pulse(**{f"{port}_update_value": value, f"{port}_update_valid": 1})
            await tb.expect(name, value)
            assert int(getattr(dut, port).value) == value
        others = {other: await tb.read(other) for other in UPDATED_REGISTERS}
        await tb.pulse(**{f"{port}_update_value": value ^ 1, f"{port}_update_valid": 0})
        for other, value in others.items():
            await tb.expect(other, value)
    assert not dut.irq.value
    await tb.write("CONTROL", 1)
    dut.waiting.value = 1
    await tb.expect("STATUS", 9)
    dut.waiting.value = 0
    await tb.expect("STATUS", 1)
    await tb.pulse(batch=1)
    assert dut.irq.value
    await tb.expect("INTERRUPT_STATUS", 4)
    await tb.write("INTERRUPT_STATUS", 4)
    await tb.cycles(1)
    assert not dut.irq.value
    await tb.pulse(finish=1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(probability=[0.0, 0.3, 0.8])
async def concurrent_traffic(dut, probability):
    """Writes and reads at the same time, with idles and back-pressure on every channel."""
    tb = await bench(dut)
    tb.pause(probability)
    state = dict.fromkeys(HARDWARE_REGISTERS, 0)

    async def reader():
        constants = [r for r in MAP if all(f.access is Access.CONSTANT for f in r.fields)]
        for _ in range(100):
            register = random.choice(constants)
            await tb.expect(register.name, register.reset)

    reading = cocotb.start_soon(reader())
    for _ in range(25):
        operations = []
        for name in random.choices(HARDWARE_REGISTERS, k=random.randint(1, 4)):
            value = random.getrandbits(32)
            state[name] = value & sum(f.mask for f in MAP[name].fields)
            offset = MAP[name].offset
            operations.append(tb.master.init_write(offset, value.to_bytes(4, "little")))
        for operation in operations:
            await operation.wait()
            assert operation.data.resp == AxiResp.OKAY
        for name in random.sample(HARDWARE_REGISTERS, 2):
            await tb.expect(name, state[name])
    await reading
    for name, value in state.items():
        await tb.expect(name, value)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_forgets_everything(dut):
    tb = await bench(dut)
    await tb.write("MEM_SIZE", 7)
    await tb.pulse(core0_flags=15)
    await one_run(tb, cycles=500, density=0.5)
    await tb.write("CONTROL", 1)
    tb.master.init_read(MAP["CYCLES_LO"].offset, 4)
    await tb.cycles(3)
    await tb.reset(1)
    for register in MAP:
        await tb.expect(register.name, register.reset)
    await check_counters(tb, await one_run(tb, cycles=100, density=0.5))
