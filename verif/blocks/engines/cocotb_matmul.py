"""cocotb bench of the matrix unit: random WEIGHTS and MATMUL commands against the emulator."""

import os

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from emulator.machine import Machine
from golden.arithmetic.dot_product import encode, format_by_name
from hw.isa.encoding import (
    HEADER_LAYOUT,
    MATMUL_LOOPS,
    WEIGHTS_LOOPS,
    Init,
    Opcode,
    command_layout,
    with_defaults,
)
from hw.isa.encoding import encode as encode_command

from .. import support
from ..ports import Ports


def random_operands(rng, fmt, shape):
    """Operand codes: mostly ordinary values, some zeros and extremes."""
    values = rng.normal(size=shape) * np.exp2(rng.integers(-6, 7, size=shape))
    if not fmt.is_float:
        values = rng.integers(-128, 128, size=shape)
    values = np.where(rng.random(shape) < 0.1, 0, values)
    return encode(fmt, values).astype(np.uint64)


class Bench:
    """Drives one matrix unit; a :class:`~emulator.machine.Machine` executes the same commands."""

    def __init__(self, dut):
        self.dut = dut
        self.config = support.configuration()
        self.core = self.config.cores[0]
        self.fmt = format_by_name(self.config.operand_format)
        seed = int(os.environ["ADAGP_SEED"])
        self.rng = np.random.default_rng(seed)
        self.words = self.config.buffer_banks * self.config.buffer_bank_depth
        self.disturbance = np.random.default_rng(seed + 1)
        self.sent = self.finished = 0
        self.last_sums = 0, 0
        self.waiting = {Opcode.WEIGHTS: [], Opcode.MATMUL: []}
        self.machine = Machine(self.config, bytearray(), kernels=False)

    def pack(self, operands):
        width = self.core.operand_width
        return sum(int(value) << (width * lane) for lane, value in enumerate(operands))

    async def fill_buffer(self):
        dut, core = self.dut, self.core
        buffer = random_operands(self.rng, self.fmt, (self.words, core.rows))
        if not self.fmt.is_float:  # biases at the end of the range, whose sums overflow
            for word in self.rng.integers(self.words - 4, size=self.words // 6):
                largest = word * core.rows + np.arange(4)
                buffer.reshape(-1)[largest] = (0xFF, 0xFF, 0xFF, 0x7F)
        raw = buffer.astype(self.machine.dtype).view(np.uint8)
        self.machine.memories["memory 0"].write(slice(0, raw.size), raw.reshape(-1, 1))
        dut.write__valid.value = 1
        dut.write__enable.value = (1 << core.groups_per_word) - 1
        for address, operands in enumerate(buffer):
            dut.write__address.value = address
            dut.write__data.value = self.pack(operands)
            await support.next_cycle(dut)
        dut.write__valid.value = 0

    def random_matmul(self):
        """Fields of a command whose addresses stay in the buffer, and its number of K tiles."""
        rng, core = self.rng, self.core
        while True:
            counts = dict(
                zip(
                    MATMUL_LOOPS, (int(n) for n in rng.integers(1, [6, 5, 3, 4, 4, 4])), strict=True
                )
            )
            if rng.random() < 0.2:
                counts |= {"wo": 1, "ho": 1, "n": 1}
            pixels = counts["wo"] * counts["ho"] * counts["n"]
            taps = counts["kw"] * counts["kh"] * counts["cb"]
            transpose, ones = int(rng.integers(2)), int(rng.integers(2))
            vectors, tiles = pixels, taps
            if transpose:
                vectors, tiles = taps * core.rows + ones, -(-pixels // core.rows)
            strides = dict(
                zip(MATMUL_LOOPS, (int(n) for n in rng.integers(-4, 9, size=6)), strict=True)
            )
            low, high = (
                sum(strides[n] * (counts[n] - 1) for n in MATMUL_LOOPS if (strides[n] > 0) == up)
                for up in (False, True)
            )
            if high - low >= self.words or vectors > core.accumulator_depth:
                continue
            bank, entry = self.last_sums
            if rng.random() < 0.6 or entry + vectors > core.accumulator_depth:
                bank, entry = rng.integers(2), rng.integers(core.accumulator_depth - vectors + 1)
            self.last_sums = bank, entry
            return tiles, {
                "accumulator_bank": int(bank),
                "init": int(rng.choice([Init.ZERO, Init.BIAS, Init.ACCUMULATOR])),
                "transpose": transpose,
                "ones": ones,
                "channels": int(rng.integers(1, core.columns + 2)),
                "x_address": int(rng.integers(-low, self.words - high)),
                "accumulator_address": int(entry),
                **{f"{n}_count": counts[n] for n in MATMUL_LOOPS},
                **{f"{n}_stride": strides[n] for n in MATMUL_LOOPS},
                "h_origin": int(rng.integers(-2, 2)),
                "w_origin": int(rng.integers(-2, 2)),
                "h_limit": int(rng.integers(1, 8)),
                "w_limit": int(rng.integers(1, 8)),
                **{
                    n: int(rng.integers(0, 3)) for n in ("ho_step", "wo_step", "kh_step", "kw_step")
                },
            }

    def random_weights(self, tiles, bias):
        """Fields of a command that brings ``tiles`` tiles."""
        rng, core = self.rng, self.core
        shapes = [
            (a, b, tiles // a // b)
            for a in range(1, tiles + 1)
            for b in range(1, tiles + 1)
            if tiles % (a * b) == 0
        ]
        counts = dict(zip(WEIGHTS_LOOPS, shapes[rng.integers(len(shapes))], strict=True))
        while True:
            transpose = int(rng.integers(2))
            blocks = int(rng.integers(1, 4))
            strides = {n: int(rng.integers(-9, 10)) for n in WEIGHTS_LOOPS}
            row_stride = int(rng.integers(-3, 7))
            reach = [strides[n] * (counts[n] - 1) for n in WEIGHTS_LOOPS]
            reach.append(row_stride * ((core.rows if transpose else core.columns) - 1))
            reach.append(blocks - 1 if transpose else 0)
            low, high = sum(min(n, 0) for n in reach), sum(max(n, 0) for n in reach)
            if high - low >= self.words:
                continue
            return {
                "address": int(rng.integers(-low, self.words - high)),
                "row_stride": row_stride,
                **{f"{n}_count": counts[n] for n in WEIGHTS_LOOPS},
                **{f"{n}_stride": strides[n] for n in WEIGHTS_LOOPS},
                "row_limit": int(rng.choice([0xFFFF, rng.integers(1, 3 * core.rows)])),
                "transpose": transpose,
                "block_count": blocks,
                "skip": int(rng.choice([0, rng.integers(core.rows)])),
                "bias": int(bias),
                "bias_address": int(rng.integers(self.words - core.bias_words)),
            }

    def send(self, matmul, weights):
        """Give the unit two commands that belong together, and have the machine execute them."""
        self.waiting[Opcode.WEIGHTS].append(weights)
        self.waiting[Opcode.MATMUL].append(matmul)
        self.sent += 1
        for opcode, fields in ((Opcode.WEIGHTS, weights), (Opcode.MATMUL, matmul)):
            self.machine.execute(opcode, {"core": 0, **with_defaults(opcode, fields)})

    async def feed(self, opcode):
        """Offers commands as they come."""
        name = "weights" if opcode is Opcode.WEIGHTS else "command"
        payload, valid, ready = (
            getattr(self.dut, f"{name}__{part}") for part in ("payload", "valid", "ready")
        )
        mask = (1 << command_layout(opcode).size) - 1
        while True:
            if not self.waiting[opcode]:
                await support.next_cycle(self.dut)
                continue
            word = int.from_bytes(encode_command(opcode, **self.waiting[opcode].pop(0)), "little")
            payload.value = word >> HEADER_LAYOUT.size & mask
            valid.value = 1
            accepted = 0
            while not accepted:
                await support.settle()
                accepted = int(ready.value)
                await support.next_cycle(self.dut)
            valid.value = 0
            # Now and then the other side is far ahead.
            if self.disturbance.random() < 0.2:
                for _ in range(int(self.disturbance.integers(100))):
                    await support.next_cycle(self.dut)

    async def wait_until_done(self, place):
        for _ in range(20000):
            if self.finished == self.sent:
                for _ in range(200):  # a tile may be complete before its last words are read
                    if not int(self.dut.weights_held.value):
                        break
                    await support.next_cycle(self.dut)
                assert not int(self.dut.weights_held.value), f"{place}: weights are left"
                return
            await support.next_cycle(self.dut)
        raise AssertionError(f"{place}: {self.finished} of {self.sent} commands are done")

    async def read_sums(self, bank, entry):
        dut = self.dut
        dut.sums__valid.value = 1
        dut.sums__bank.value = bank
        dut.sums__address.value = entry
        await support.next_cycle(dut)
        dut.sums__valid.value = 0
        await support.next_cycle(dut)
        text = int(dut.sums__data.value)
        return [(text >> (32 * i)) & 0xFFFFFFFF for i in range(self.core.columns)]

    async def check(self, place):
        for bank in range(2):
            sums = self.machine.accumulator(self.core, {"accumulator_bank": bank}).data.view("<u4")
            for entry in range(self.core.accumulator_depth):
                actual = await self.read_sums(bank, entry)
                for column, value in enumerate(actual):
                    expected = int(sums[entry, column])
                    if value != expected:
                        shown = [np.uint32(v).view(np.float32) for v in (value, expected)]
                        raise AssertionError(
                            f"{place}: bank {bank}, entry {entry}, column {column}: "
                            f"{value:#010x} ({shown[0]}), expected {expected:#010x} ({shown[1]})"
                        )


async def disturb(bench, share):
    """Reads of another client at random, which hold up the unit."""
    dut = bench.dut
    while True:
        dut.disturb__valid.value = int(bench.disturbance.random() < share)
        dut.disturb__address.value = int(bench.disturbance.integers(bench.words))
        await support.next_cycle(dut)


async def count_done(bench):
    while True:
        await RisingEdge(bench.dut.clk)
        bench.finished += int(bench.dut.done.value)


@cocotb.test()
@cocotb.parametrize(disturbance=[0.0, 0.5])
async def random_commands(dut, disturbance):
    """Commands of all kinds back to back, sums after each batch, with and without conflicts."""
    dut = Ports(dut)
    bench = Bench(dut)
    for port in (
        dut.command__valid,
        dut.weights__valid,
        dut.write__valid,
        dut.disturb__valid,
        dut.sums__valid,
    ):
        port.value = 0
    await support.start(dut)
    await bench.fill_buffer()
    tasks = [cocotb.start_soon(count_done(bench))]
    tasks += [cocotb.start_soon(bench.feed(opcode)) for opcode in bench.waiting]
    # Every entry starts as the sum of one padded vector.
    zeros = dict.fromkeys(("x_address", "h_origin", "w_origin", "h_limit", "w_limit"), 0)
    for bank in range(2):
        for first in range(0, bench.core.accumulator_depth, 16):
            count = min(16, bench.core.accumulator_depth - first)
            sums = {"accumulator_bank": bank, "accumulator_address": first}
            fields = zeros | sums | {"channels": 1, "wo_count": count}
            bench.send(fields, bench.random_weights(1, False))
    await bench.wait_until_done("start")
    if disturbance:
        tasks.append(cocotb.start_soon(disturb(bench, disturbance)))
    for batch in range(8):
        for _ in range(5):
            tiles, matmul = bench.random_matmul()
            bench.send(matmul, bench.random_weights(tiles, matmul["init"] == Init.BIAS))
        await bench.wait_until_done(f"batch {batch}")
        await bench.check(f"disturbance {disturbance}, batch {batch}")
    for task in tasks:
        task.cancel()
