"""cocotb bench of the matrix unit: random MATMUL commands, compared with golden bit for bit."""

import os

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from golden.numerics import column_dot, encode, format_by_name
from hw.commands import COMMANDS, HEADER_LAYOUT, MATMUL_LOOPS, Init, Opcode, command_layout
from hw.commands import encode as encode_command
from verif import cocotb_support as support


def random_operands(rng, fmt, shape):
    """Operand codes: mostly ordinary values, some zeros and extremes."""
    values = rng.normal(size=shape) * np.exp2(rng.integers(-6, 7, size=shape))
    if not fmt.is_float:
        values = rng.integers(-128, 128, size=shape)
    values = np.where(rng.random(shape) < 0.1, 0, values)
    return encode(fmt, values).astype(np.uint64)


class Bench:
    """Drives one matrix unit and keeps a model of its buffer and accumulators."""

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
        self.payload_mask = (1 << command_layout(Opcode.MATMUL).size) - 1
        self.sums = np.zeros((2, self.core.accumulator_depth, self.core.columns), np.uint32)

    def pack(self, operands):
        width = self.core.operand_width
        return sum(int(value) << (width * lane) for lane, value in enumerate(operands))

    async def fill_buffer(self):
        dut, core = self.dut, self.core
        self.buffer = random_operands(self.rng, self.fmt, (self.words, core.rows))
        dut.write__valid.value = 1
        dut.write__enable.value = (1 << core.groups_per_word) - 1
        for address, operands in enumerate(self.buffer):
            dut.write__address.value = address
            dut.write__data.value = self.pack(operands)
            await support.next_cycle(dut)
        dut.write__valid.value = 0

    def random_command(self):
        """Fields of a command whose addresses stay in the buffer."""
        rng, core = self.rng, self.core
        while True:
            counts = dict(
                zip(
                    MATMUL_LOOPS, (int(n) for n in rng.integers(1, [6, 5, 3, 4, 4, 4])), strict=True
                )
            )
            if rng.random() < 0.2:
                counts |= {"wo": 1, "ho": 1, "n": 1}
            vectors = counts["wo"] * counts["ho"] * counts["n"]
            tiles = counts["kw"] * counts["kh"] * counts["cb"]
            init = rng.choice([Init.ZERO, Init.BIAS, Init.ACCUMULATOR])
            bias = core.bias_words if init == Init.BIAS else 0
            strides = dict(
                zip(MATMUL_LOOPS, (int(n) for n in rng.integers(-4, 9, size=6)), strict=True)
            )
            reach = [
                sum(strides[n] * (counts[n] - 1) for n in MATMUL_LOOPS if (strides[n] > 0) == up)
                for up in (False, True)
            ]
            if reach[1] - reach[0] >= self.words or tiles * core.columns + bias > self.words:
                continue
            bank, entry = self.last_sums
            if rng.random() < 0.6 or entry + vectors > core.accumulator_depth:
                bank, entry = rng.integers(2), rng.integers(core.accumulator_depth - vectors + 1)
            self.last_sums = bank, entry
            return {
                "accumulator_bank": int(bank),
                "init": int(init),
                "channels": int(rng.integers(1, core.columns + 2)),
                "x_address": int(rng.integers(-reach[0], self.words - reach[1])),
                "w_address": int(rng.integers(self.words - tiles * core.columns - bias + 1)),
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

    async def send(self, command):
        """Give the unit a command, and have the model execute it."""
        word = int.from_bytes(encode_command(Opcode.MATMUL, **command), "little")
        self.dut.command__payload.value = word >> HEADER_LAYOUT.size & self.payload_mask
        self.dut.command__valid.value = 1
        for _ in range(20000):
            await support.settle()
            ready = int(self.dut.command__ready.value)
            await support.next_cycle(self.dut)
            if ready:
                break
        else:
            raise AssertionError(f"command {self.sent} is not accepted")
        self.dut.command__valid.value = 0
        self.sent += 1
        self.execute(command)

    async def wait_until_done(self, place):
        for _ in range(20000):
            if self.finished == self.sent:
                return
            await support.next_cycle(self.dut)
        raise AssertionError(f"{place}: {self.finished} of {self.sent} commands are done")

    def execute(self, c):
        """What the command does to the model's sums."""
        core = self.core
        count = {n: c[f"{n}_count"] for n in MATMUL_LOOPS}
        stride = {n: c[f"{n}_stride"] for n in MATMUL_LOOPS}
        n, ho, wo = np.meshgrid(
            *(np.arange(count[name]) for name in ("n", "ho", "wo")), indexing="ij"
        )
        entries = slice(c["accumulator_address"], c["accumulator_address"] + n.size)
        sums = self.sums[c["accumulator_bank"], entries]
        weights = c["w_address"]
        if c["init"] == Init.ZERO:
            sums = np.zeros_like(sums)
        elif c["init"] == Init.BIAS:
            words = self.buffer[weights : weights + core.bias_words]
            text = sum(self.pack(word) << (core.word_width * i) for i, word in enumerate(words))
            bias = [(text >> (32 * i)) & 0xFFFFFFFF for i in range(core.columns)]
            sums = np.broadcast_to(np.array(bias, np.uint32), sums.shape)
            weights += core.bias_words
        for cb in range(count["cb"]):
            for kh in range(count["kh"]):
                for kw in range(count["kw"]):
                    h = c["h_origin"] + ho * c["ho_step"] + kh * c["kh_step"]
                    w = c["w_origin"] + wo * c["wo_step"] + kw * c["kw_step"]
                    address = c["x_address"] + sum(
                        index * stride[name]
                        for name, index in (
                            ("n", n), ("ho", ho), ("wo", wo), ("cb", cb), ("kh", kh), ("kw", kw),
                        )
                    )  # fmt: skip
                    inside = (h >= 0) & (h < c["h_limit"]) & (w >= 0) & (w < c["w_limit"])
                    x = np.where(inside[..., None], self.buffer[address], 0)
                    tile = self.buffer[weights : weights + core.columns].T
                    weights += core.columns
                    sums, _ = column_dot(
                        self.fmt, x.reshape(-1, core.rows).astype(np.uint32),
                        tile.astype(np.uint32), sums.astype(np.uint32),
                    )  # fmt: skip
        self.sums[c["accumulator_bank"], entries] = sums

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
            for entry in range(self.core.accumulator_depth):
                actual = await self.read_sums(bank, entry)
                for column, value in enumerate(actual):
                    expected = int(self.sums[bank, entry, column])
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
    bench = Bench(dut)
    for port in (dut.command__valid, dut.write__valid, dut.disturb__valid, dut.sums__valid):
        port.value = 0
    await support.start(dut)
    await bench.fill_buffer()
    tasks = [cocotb.start_soon(count_done(bench))]
    # Every entry starts as the sum of one padded vector.
    for bank in range(2):
        for first in range(0, bench.core.accumulator_depth, 16):
            await bench.send(
                {
                    **{field.name: 0 for field in COMMANDS[Opcode.MATMUL]},
                    **{f"{name}_count": 1 for name in MATMUL_LOOPS},
                    "wo_count": min(16, bench.core.accumulator_depth - first),
                    "channels": 1,
                    "accumulator_bank": bank,
                    "accumulator_address": first,
                }
            )
    if disturbance:
        tasks.append(cocotb.start_soon(disturb(bench, disturbance)))
    for batch in range(6):
        for _ in range(5):
            await bench.send(bench.random_command())
        await bench.wait_until_done(f"batch {batch}")
        await bench.check(f"disturbance {disturbance}, batch {batch}")
    for task in tasks:
        task.cancel()
