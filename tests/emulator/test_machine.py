"""Single commands of the functional model against loops written out: emulator/transfers.py,
emulator/matmul.py, emulator/post.py. Programs, and VECTOR and LOSS: test_interpreter.py.

Covers: emulator/matmul.py, emulator/post.py, emulator/transfers.py.
"""

import itertools

import numpy as np
import pytest

from emulator.machine import Machine
from emulator.memory import loop_indices
from emulator.transfers import transfer_rows
from golden.arithmetic.dot_product import column_dot, encode
from golden.commands.post import post
from hw.config import make_config
from hw.isa.encoding import MATMUL_LOOPS, POST_LOOPS, Init, Opcode, Pool, with_defaults

CONFIG = make_config(variant="baseline", preset="tiny", rows=3, columns=5)
CORE = CONFIG.cores[0]
WORDS = CONFIG.memory_depth[0]


@pytest.fixture(params=[True, False], ids=["kernels", "golden"])
def machine(rng, request):
    """With random operands in the buffer and random sums in the accumulators."""
    machine = Machine(CONFIG, bytearray(64), kernels=request.param)
    codes = encode(machine.format, rng.normal(size=(WORDS, CORE.rows))).astype(machine.dtype)
    machine.memories["memory 0"].write(slice(None), codes.view(np.uint8).reshape(-1, 1))
    for bank in range(2):
        sums = rng.normal(size=(CORE.accumulator_depth, CORE.columns)).astype("<f4")
        machine.accumulator(CORE, {"accumulator_bank": bank}).write(slice(None), sums.view("u1"))
    return machine


def operands(machine):
    """(words, rows) of the buffer."""
    raw = np.ascontiguousarray(machine.memories["memory 0"].data)
    return raw.reshape(-1).view(machine.dtype).reshape(WORDS, CORE.rows)


def sums_of(machine, bank):
    data = machine.accumulator(CORE, {"accumulator_bank": bank}).data
    return np.ascontiguousarray(data).view("<u4").copy()


def test_loops_go_from_the_inside_out():
    index = loop_indices({"a_count": 2, "b_count": 3}, ("a", "b"))
    assert index["a"].tolist() == [0, 0, 0, 1, 1, 1]
    assert index["b"].tolist() == [0, 1, 2, 0, 1, 2]


def test_rows_of_a_transfer(rng):
    for _ in range(50):
        rows, runs, row_bytes = (int(rng.integers(1, high)) for high in (4, 4, 20))
        fields = {
            "buffer_address": int(rng.integers(1000)),
            "dram_address": int(rng.integers(1000)),
            "run_bytes": rows * row_bytes,
            "run_count": runs,
            "run_stride": int(rng.integers(200)),
            "row_bytes": row_bytes,
        }
        dram, words = transfer_rows(fields, 6)
        word, number = fields["buffer_address"], 0
        for run, row in itertools.product(range(runs), range(rows)):
            start = fields["dram_address"] + run * fields["run_stride"] + row * row_bytes
            assert dram[number].tolist() == list(range(start, start + row_bytes)), fields
            count = -(-row_bytes // 6)
            assert words[number].tolist() == list(range(word, word + count)), fields
            word, number = word + count, number + 1
        assert len(dram) == len(words) == number


def random_matmul(rng, transpose):
    counts = {loop: int(rng.integers(1, 4)) for loop in MATMUL_LOOPS}
    return with_defaults(
        Opcode.MATMUL,
        {
            "accumulator_bank": int(rng.integers(2)),
            "init": int(rng.choice([Init.ZERO, Init.ACCUMULATOR])),
            "transpose": transpose,
            "ones": int(rng.integers(2)),
            "channels": CORE.columns,
            "x_address": 200,
            "accumulator_address": int(rng.integers(3)),
            **{f"{loop}_count": count for loop, count in counts.items()},
            **{f"{loop}_stride": int(rng.integers(-3, 4)) for loop in MATMUL_LOOPS},
            **{name: int(rng.integers(-2, 2)) for name in ("h_origin", "w_origin")},
            **{name: int(rng.integers(1, 6)) for name in ("h_limit", "w_limit")},
            **{name: int(rng.integers(3)) for name in ("ho_step", "wo_step", "kh_step", "kw_step")},
        },
    )


@pytest.mark.parametrize("transpose", [0, 1])
def test_matmul_step_by_step(machine, rng, transpose):
    rows, buffer = CORE.rows, operands(machine)
    for _ in range(20):
        c = random_matmul(rng, transpose)
        taps = list(itertools.product(*(range(c[f"{n}_count"]) for n in ("cb", "kh", "kw"))))
        pixels = list(itertools.product(*(range(c[f"{n}_count"]) for n in ("n", "ho", "wo"))))

        def word(tap, pixel, c=c):
            step = dict(zip(("cb", "kh", "kw", "n", "ho", "wo"), tap + pixel, strict=True))
            h = c["h_origin"] + step["ho"] * c["ho_step"] + step["kh"] * c["kh_step"]
            w = c["w_origin"] + step["wo"] * c["wo_step"] + step["kw"] * c["kw_step"]
            if not (0 <= h < c["h_limit"] and 0 <= w < c["w_limit"]):
                return np.zeros(rows, machine.dtype)
            return buffer[c["x_address"] + sum(step[n] * c[f"{n}_stride"] for n in MATMUL_LOOPS)]

        if transpose:
            tiles = []
            for first in range(0, len(pixels), rows):
                part = pixels[first : first + rows]
                vectors = np.zeros((len(taps) * rows + c["ones"], rows), machine.dtype)
                for number, tap in enumerate(taps):
                    for lane, pixel in enumerate(part):
                        vectors[number * rows : (number + 1) * rows, lane] = word(tap, pixel)
                if c["ones"]:
                    vectors[-1] = encode(machine.format, 1.0)
                tiles.append(vectors)
        else:
            tiles = [np.array([word(tap, pixel) for pixel in pixels]) for tap in taps]
        before = sums_of(machine, c["accumulator_bank"])
        place = slice(c["accumulator_address"], c["accumulator_address"] + len(tiles[0]))
        sums = before[place]
        if c["init"] == Init.ZERO:
            sums = np.zeros_like(sums)
        for vectors in tiles:
            codes = encode(machine.format, rng.normal(size=(rows, CORE.columns)))
            weights = codes.astype(machine.dtype)
            machine.tiles[0].append((weights, None))
            sums, _ = column_dot(machine.format, vectors, weights, sums)
        machine.execute(Opcode.MATMUL, {"core": 0, **c})
        expected = before.copy()
        expected[place] = sums
        actual = sums_of(machine, c["accumulator_bank"])
        for entry, column in np.argwhere(actual != expected)[:1]:
            raise AssertionError(
                f"entry {entry} column {column}: {actual[entry, column]:#010x}, expected "
                f"{expected[entry, column]:#010x}; {c}"
            )
        assert not machine.tiles[0]


@pytest.mark.parametrize("wide", [0, 1])
def test_post_output_by_output(machine, rng, wide):
    for _ in range(20):
        counts = {loop: int(rng.integers(1, 4)) for loop in POST_LOOPS}
        c = with_defaults(
            Opcode.POST,
            {
                "accumulator_bank": int(rng.integers(2)),
                "pool": int(rng.choice(list(Pool))),
                "relu": int(rng.integers(2)),
                "wide": wide,
                "accumulator_address": 60,
                **{f"{loop}_count": count for loop, count in counts.items()},
                **{f"{n}_stride": int(rng.integers(-4, 5)) for n in POST_LOOPS if n != "group"},
                "channels": int(rng.integers(1, CORE.columns + 2)),
                "out_address": (1 << 24) - 3,
                "out_group": int(rng.integers(CORE.groups_per_word)),
                **{f"out_{n}_stride": int(rng.integers(-9, 10)) for n in ("n", "ho", "wo")},
                "scale": 0x3F000000,
            },
        )
        words, data, flags = machine.commands[0, Opcode.POST].outputs(c)
        sums, raised = sums_of(machine, c["accumulator_bank"]), 0
        outputs = itertools.product(*(range(c[f"{n}_count"]) for n in ("n", "ho", "wo")))
        for number, place in enumerate(outputs):
            step = dict(zip(("n", "ho", "wo"), place, strict=True))
            window = [
                c["accumulator_address"]
                + sum(step[n] * c[f"{n}_stride"] for n in step)
                + ph * c["ph_stride"]
                + pw * c["pw_stride"]
                for ph in range(c["ph_count"])
                for pw in range(c["pw_count"])
            ]
            lanes = c["group_count"] * CORE.post_lanes
            valid = min(c["channels"], lanes, CORE.columns)
            result, new = post(
                machine.format, sums[window][np.newaxis, :, :valid], relu=bool(c["relu"]),
                pool="sum" if c["pool"] == Pool.SUM else "max", scale=c["scale"], wide=bool(wide),
            )  # fmt: skip
            raised |= int(np.bitwise_or.reduce(new, axis=None, initial=0))
            expected = np.zeros(lanes, "<u4" if wide else machine.dtype)
            expected[:valid] = result[0]
            found = data[number].view(expected.dtype)
            for lane in np.flatnonzero(found != expected)[:1]:
                raise AssertionError(
                    f"output {place} lane {lane}: {found[lane]:#x}, expected {expected[lane]:#x}"
                )
            wanted = c["out_address"] + sum(step[n] * c[f"out_{n}_stride"] for n in step)
            assert words[number] == wanted % (1 << 24), f"output {place}: word {words[number]:#x}"
        assert flags == raised
