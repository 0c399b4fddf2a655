"""The simulation memory axi_ram against cocotbext-axi's master, and raw violations."""

import itertools
import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBus, AxiMaster, AxiResp

from verif.sim.axi_ram import SimMemory


async def _start(dut, *, master=True):
    Clock(dut.clk, 10, unit="ns").start()
    rng = random.Random(int(os.environ["ADAGP_SEED"]))
    dut._log.info("seed %s", os.environ["ADAGP_SEED"])
    memory = SimMemory(dut, prefix="")
    memory.set_seed(rng.getrandbits(32))
    axi = AxiMaster(AxiBus.from_prefix(dut, ""), dut.clk, dut.rst) if master else None
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    return memory, axi, rng


@cocotb.test()
async def random_accesses(dut):
    """Unaligned reads and writes of all sizes, with stalls on both sides."""
    memory, axi, rng = await _start(dut)
    image = bytearray(rng.randbytes(1 << 16))
    await memory.load(0, image)
    for stall in (0, 60, 180):
        memory.set_stalls(aw=stall, w=stall, b=stall, ar=stall, r=stall)
        memory.set_latency(read=stall // 8, write=stall // 16)
        if stall:
            axi.read_if.r_channel.set_pause_generator(itertools.cycle([0, 1, 1]))
            axi.write_if.b_channel.set_pause_generator(itertools.cycle([1, 0]))
        for _ in range(12):
            count, at = rng.choice([1, 3, 8, 100, 1000]), rng.randrange(1 << 15)
            data = rng.randbytes(count)
            response = await axi.write(at, data)
            assert response.resp == AxiResp.OKAY
            image[at : at + count] = data
            count, at = rng.choice([1, 7, 64, 5000]), rng.randrange(1 << 15)
            response = await axi.read(at, count)
            assert response.data == image[at : at + count], f"{count} bytes at {at:#x}"
    assert bytes(await memory.dump(0, 1 << 16)) == image
    assert bytes(await memory.dump(4099, 77)) == image[4099 : 4099 + 77]
    memory.check()


@cocotb.test()
async def back_door(dut):
    """load, dump, read and write agree."""
    memory, _, rng = await _start(dut)
    image = rng.randbytes(1000)
    await memory.load(64, image)
    assert await memory.read(64 + 13, 30) == image[13:43]
    await memory.write(64 + 13, b"0123456789")
    expected = image[:13] + b"0123456789" + image[23:]
    assert bytes(await memory.dump(64, 1000)) == expected


@cocotb.test()
async def errors(dut):
    """Responses of the error window and beyond the end."""
    memory, axi, _ = await _start(dut)
    await memory.load(0, bytes(1 << 13))
    for response, code in (("slverr", AxiResp.SLVERR), ("decerr", AxiResp.DECERR)):
        memory.set_error(0x1000, 0x100, response)
        assert (await axi.read(0x1000, 8)).resp == code
        assert (await axi.write(0x10F8, b"12345678")).resp == code
        assert (await axi.read(0x0FF8, 8)).resp == AxiResp.OKAY
        assert (await axi.write(0x1100, b"12345678")).resp == AxiResp.OKAY
    assert await memory.read(0x10F8, 8) == bytes(8)
    memory.set_error()
    assert (await axi.read(1 << 16, 8)).resp == AxiResp.DECERR
    memory.check()


@cocotb.test()
async def violations(dut):
    """Every check of the master counts."""
    memory, _, _ = await _start(dut, master=False)
    for name in ("awvalid", "wvalid", "arvalid", "wlast"):
        getattr(dut, name).value = 0
    dut.rready.value = dut.bready.value = 1
    dut.arsize.value = dut.awsize.value = memory.beat_bytes.bit_length() - 1
    dut.arburst.value = dut.awburst.value = 1

    async def count():
        await ClockCycles(dut.clk, 3)
        value = int(dut.protocol_errors.value)
        return value

    dut.araddr.value, dut.arlen.value = 0x1000 - 2 * memory.beat_bytes, 2  # crosses 4 KiB
    dut.arvalid.value = 1
    await RisingEdge(dut.clk)
    dut.arvalid.value = 0
    assert await count() == 1
    dut.awaddr.value, dut.awlen.value, dut.awvalid.value = 0, 1, 1
    await RisingEdge(dut.clk)
    dut.awvalid.value = 0
    dut.wvalid.value = dut.wlast.value = 1  # last on the first of two beats, not on the second
    await RisingEdge(dut.clk)
    while not dut.wready.value:
        await RisingEdge(dut.clk)
    dut.wlast.value = 0
    await RisingEdge(dut.clk)
    dut.wvalid.value = 0
    assert await count() == 3
    memory.set_stalls(ar=255)
    before = int(dut.protocol_errors.value)
    for _ in range(8):  # valid withdrawn
        dut.arvalid.value, dut.araddr.value, dut.arlen.value = 1, 0, 0
        await RisingEdge(dut.clk)
        dut.arvalid.value = 0
        await RisingEdge(dut.clk)
    assert await count() > before
