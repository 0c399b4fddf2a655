"""The machine with kernels against the machine with golden's functions: memories, flags, errors.

Covers: emulator/kernels/operands.py, emulator/kernels/post.py, emulator/kernels/transfers.py,
emulator/kernels/words.py.
"""

import random

import numpy as np
import pytest
import torch
from torch import nn

from compiler.training import compile_training
from emulator.executor import execute
from emulator.machine import FunctionalError, Machine
from golden.arithmetic.formats import FORMATS
from golden.commands.vector import VectorMachine
from hw.config import BUFFER_ADDRESS_WIDTH, make_config
from hw.isa.encoding import (
    MATMUL_LOOPS,
    POST_LOOPS,
    WEIGHTS_LOOPS,
    Init,
    Opcode,
    Pool,
    with_defaults,
)
from verif.stimulus.vector import WORDS, fill, random_command

DRAM_BYTES = 4096
ADDRESSES = 1 << BUFFER_ADDRESS_WIDTH
FLOATS = [name for name, fmt in FORMATS.items() if fmt.is_float]


class Pair:
    """Two machines with the same contents: the first one has kernels."""

    def __init__(self, config, contents, memory, **options):
        self.config, self.core = config, config.cores[0]
        self.both = [
            Machine(config, bytearray(memory), kernels=k, **options) for k in (True, False)
        ]
        for machine in self.both:
            machine.memories["memory 0"].write(slice(0, contents.size), contents.reshape(-1, 1))

    def execute(self, opcode, **fields):
        """On both; the text of the error, or None. The kernels do not leave it to golden."""
        fields = {"core": 0, **with_defaults(opcode, fields)}
        texts = []
        for machine in self.both:
            try:
                machine.execute(opcode, fields)
                texts.append(None)
            except (FunctionalError, ValueError) as error:
                texts.append(f"{type(error).__name__}: {error}")
        assert texts[0] == texts[1], f"{opcode.name} {fields}"
        if not texts[0]:
            self.compare(f"{opcode.name} {fields}")
        return texts[0]

    def compare(self, text):
        one, other = self.both
        assert one.flags == other.flags, f"flags {one.flags:#x}, golden {other.flags:#x}: {text}"
        assert one.rejected == other.rejected, text
        for name, memory in one.memories.items():
            expected = other.memories[name]
            for part in ("data", "written"):
                a, b = getattr(memory, part), getattr(expected, part)
                for place in np.argwhere(a != b)[:1]:
                    raise AssertionError(
                        f"{name} {part} at {place.tolist()}: {a[tuple(place)]:#x}, golden "
                        f"{b[tuple(place)]:#x}; {text}"
                    )
        for tiles, wanted in zip(one.tiles, other.tiles, strict=True):
            assert len(tiles) == len(wanted), text
            for (tile, bias), (tile_wanted, bias_wanted) in zip(tiles, wanted, strict=True):
                assert np.array_equal(tile, tile_wanted) and tile.dtype == tile_wanted.dtype, text
                assert (bias is None) == (bias_wanted is None), text
                assert bias is None or np.array_equal(bias, bias_wanted), text


@pytest.fixture(autouse=True)
def _no_refusal(monkeypatch):
    """What golden's classes would execute, the kernels do not refuse: they fail loudly here."""
    from emulator.compiled import CompiledCommands

    real = CompiledCommands.execute

    def watched(self, opcode, fields):
        done = real(self, opcode, fields)
        self._machine.__dict__.setdefault("refused", []).extend([] if done else [opcode])
        return done

    monkeypatch.setattr(CompiledCommands, "execute", watched)


def pair(fmt, rng, rows=4, columns=5, **options):
    config = make_config(
        variant="baseline", preset="tiny", operand_format=fmt, rows=rows, columns=columns,
        post_lanes=1, training=fmt != "int8", accumulator_depth=64,
    )  # fmt: skip
    if fmt == "int8":
        contents = rng.integers(256, size=(WORDS, rows), dtype=np.uint8)
    else:
        contents = fill(rng, FORMATS[fmt], rows)
    memory = rng.integers(256, size=DRAM_BYTES, dtype=np.uint8).tobytes()
    return Pair(config, contents.view(np.uint8), memory, **options)


def refused(pair):
    return pair.both[0].__dict__.get("refused", [])


@pytest.mark.parametrize("fmt", FLOATS)
def test_vector(fmt, rng, seed):
    coefficients = [int(bits) for bits in rng.integers(1 << 32, size=8)]
    for rows, guard in ((4, False), (5, True)):
        both = pair(fmt, rng, rows=rows, coefficients=coefficients, guard=guard)
        limits = VectorMachine(fmt=both.both[0].format, memory=np.zeros((WORDS, rows), np.uint8))
        limits.memory = np.zeros((WORDS, rows), both.both[0].dtype)
        choose = random.Random(seed)
        for _ in range(60):
            for machine in both.both:
                machine.flags = machine.commands[0, Opcode.VECTOR].noted.flags = 0
            command = random_command(choose, limits, limit=30)
            assert not both.execute(Opcode.VECTOR, **command)
            # Random numbers are golden's.
            expected = [Opcode.VECTOR] if command["sample"] else []
            assert refused(both) == expected, command
            refused(both).clear()


def test_results_of_vector_that_overlap(rng):
    """Words that several steps write, float32 numbers in part."""
    both = pair("bf16", rng)
    counts = {"i0_count": 3, "i1_count": 2, "cb_count": 2, "channels": 8}
    for stride in (0, 1, -1):
        both.execute(
            Opcode.VECTOR, x_address=3, x_i0_stride=2, x_i1_stride=7, o_address=1500, wide=1,
            o_i0_stride=stride, o_i1_stride=1, **counts,
        )  # fmt: skip


def random_array_commands(rng, core, words, init):
    """WEIGHTS and MATMUL that fit each other; sometimes out of range."""
    counts = {loop: int(rng.integers(1, 4)) for loop in MATMUL_LOOPS}
    transpose, ones = int(rng.integers(2)), int(rng.integers(2))
    pixels = counts["wo"] * counts["ho"] * counts["n"]
    tiles = counts["kw"] * counts["kh"] * counts["cb"]
    if transpose:
        tiles = -(-pixels // core.rows)
    matmul = {
        "accumulator_bank": int(rng.integers(2)),
        "init": init,
        "transpose": transpose,
        "ones": ones,
        "channels": int(rng.integers(1, core.columns + 2)),
        "x_address": int(rng.choice([200, 100, 3, ADDRESSES - 3])),
        "accumulator_address": int(rng.integers(3)),
        **{f"{loop}_count": count for loop, count in counts.items()},
        **{f"{loop}_stride": int(rng.integers(-3, 9)) for loop in MATMUL_LOOPS},
        **{name: int(rng.integers(-2, 2)) for name in ("h_origin", "w_origin")},
        **{name: int(rng.integers(1, 6)) for name in ("h_limit", "w_limit")},
        **{name: int(rng.integers(3)) for name in ("ho_step", "wo_step", "kh_step", "kw_step")},
    }
    turned = int(rng.integers(2))
    weights = {
        "address": int(rng.choice([300, 350, words])),
        "row_stride": int(rng.integers(-3, 8)),
        "cb_count": tiles,
        **{f"{loop}_stride": int(rng.integers(-5, 20)) for loop in WEIGHTS_LOOPS},
        "row_limit": int(rng.integers(1, core.rows * tiles + 1 if turned else core.columns + 1)),
        "transpose": turned,
        "block_count": int(rng.integers(1, 4)),
        "skip": int(rng.integers(core.rows)),
        "bias": int(init == Init.BIAS),
        "bias_address": 30,
    }
    return weights, matmul


@pytest.mark.parametrize("fmt", FORMATS)
def test_array_and_post(fmt, rng):
    """Sums of what is in the buffer go on into POST; sums that are none, too."""
    both, done = pair(fmt, rng), 0
    for number in range(40):
        # At first nothing is in the accumulators.
        init = Init(int(rng.choice(list(Init))))
        weights, matmul = random_array_commands(rng, both.core, WORDS, init)
        if number % 8 == 7:
            matmul["accumulator_address"] = both.core.accumulator_depth - 1
        wrong = both.execute(Opcode.WEIGHTS, **weights)
        wrong = wrong or both.execute(Opcode.MATMUL, **matmul)
        done += not wrong
        for machine in both.both:
            machine.tiles[0].clear()
            machine.flags = 0
        post = {
            "accumulator_bank": matmul["accumulator_bank"],
            "pool": int(rng.choice(list(Pool))),
            "relu": int(rng.integers(2)),
            "wide": int(rng.integers(2)),
            "accumulator_address": int(rng.integers(4)),
            **{f"{loop}_count": int(rng.integers(1, 3)) for loop in POST_LOOPS},
            **{f"{n}_stride": int(rng.integers(-1, 4)) for n in POST_LOOPS if n != "group"},
            "channels": int(rng.integers(1, both.core.columns + 2)),
            "out_address": int(rng.choice([1500, 1900, ADDRESSES - 3])),
            "out_group": int(rng.integers(both.core.groups_per_word)),
            **{f"out_{n}_stride": int(rng.integers(-9, 10)) for n in ("n", "ho", "wo")},
            "scale": int(rng.choice([0x3F000000, 0xBF99999A, 0x00010003, 0x0012F00D])),
        }
        done += not both.execute(Opcode.POST, **post)
    assert done > 20, "hardly a command does anything"


def test_sums_that_no_column_produces(rng):
    both = pair("bf16", rng)
    for machine in both.both:
        memory = machine.memories["core 0 accumulator bank 0"]
        memory.write(slice(None), 0)
    fields = {"accumulator_bank": 0, "channels": 5, "group_count": 5, "out_group": 0, "scale": 0}
    seen = set()
    for bits in (
        0x00000001,
        0x807FFFFF,
        0x7F800001,
        0xFFC00000,
        0x7FC00000,
        0x80000000,
        0xFF800000,
    ):
        for machine in both.both:
            sums = machine.memories["core 0 accumulator bank 0"].data.view("<u4")
            sums[0] = [0x3F800000, 0x3F800000, bits, 0x3F800000, 0x3F800000]
        seen.add(both.execute(Opcode.POST, out_address=1500, **fields))
    assert len(seen - {None}) == 4 and None in seen


@pytest.mark.parametrize("rows", [4, 3])
def test_transfers(rng, rows):
    both, done = pair("bf16", rng, rows=rows), 0
    unit = both.config.granule_bytes
    for machine in both.both:
        machine.memories["dram"].written[3000:3010] = False
    for _ in range(150):
        row_bytes = unit * int(rng.integers(1, 6))
        fields = {
            "buffer_address": int(rng.choice([0, 1000, WORDS - 20, ADDRESSES - 2])),
            "dram_address": unit * int(rng.integers(DRAM_BYTES // unit)),
            "run_bytes": row_bytes * int(rng.integers(1, 4)),
            "run_count": int(rng.integers(1, 4)),
            "run_stride": unit * int(rng.integers(20)),
            "row_bytes": row_bytes,
        }
        if rng.random() < 0.1:
            fields[str(rng.choice(["dram_address", "run_stride", "row_bytes", "run_bytes"]))] += 1
        done += not both.execute(Opcode(int(rng.choice([Opcode.LOAD, Opcode.STORE]))), **fields)
    assert done > 40, "hardly a command does anything"
    assert len(refused(both)) == 150 - done


def test_a_whole_program(rng):
    """A training step: the same memory, flags and rejected tiles; only LOSS has no kernel."""
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip
    config = make_config(variant="baseline", preset="tiny", rows=4, columns=3)
    program = compile_training(model, config, (2, 4, 4), images=3)
    memory = program.memory(model.state_dict())
    images, labels = rng.normal(size=(3, 4, 4, 2)).astype(np.float32), np.array([0, 2, 1])
    for offset, data in program.batch(images, labels):
        memory[offset : offset + len(data)] = data
    results = []
    for kernels in (True, False):
        window = bytearray(memory)
        machine = Machine(
            config, window, coefficients=(0x3D4CCCCD, *[0] * 7), guard=True, kernels=kernels
        )
        assert list(execute(machine, program.commands)) == []
        results.append((window, machine.flags, machine.rejected))
        if kernels:
            assert set(machine.__dict__["refused"]) == {Opcode.LOSS}
    assert results[0][0] != memory
    for place in np.flatnonzero(np.array(results[0][0]) != np.array(results[1][0]))[:1]:
        raise AssertionError(
            f"byte {place:#x}: {results[0][0][place]:#x}, golden {results[1][0][place]:#x}"
        )
    assert results[0][1:] == results[1][1:]
