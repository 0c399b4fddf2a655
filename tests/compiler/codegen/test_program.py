"""Saved programs, the disassembler, the memory map.

Covers: hw/isa/encoding.py, hw/isa/field.py, compiler/codegen/disassemble.py,
compiler/tensors/tensor.py, compiler/tensors/intervals.py.
"""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import compiler
from compiler.__main__ import main
from compiler.codegen.disassemble import disassemble
from compiler.tensors.parameters import TAPS_TOGETHER
from compiler.tensors.tensor import IN_ORDER, Tensor, transfers
from hw.config import make_config
from hw.isa.encoding import Opcode, encode


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 5))
    return compiler.compile(
        model, make_config(variant="max", preset="tiny"), (4, 3, 6, 6), reuse=False
    )


@pytest.fixture
def run(capsys):
    """Run the command line in this process: (exit status, stdout, stderr)."""

    def call(*arguments):
        status = main(list(arguments))
        return status, *capsys.readouterr()

    return call


def test_compiling_twice_gives_the_same_bytes(program):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 5))
    again = compiler.compile(model, program.config, (4, 3, 6, 6), reuse=False)
    assert again.image() == program.image()


def test_save_and_load(program, tmp_path):
    path = tmp_path / "program.bin"
    program.save(path)
    loaded = compiler.CompiledProgram.load(path)
    assert loaded == program


def test_memory_map(program):
    assert program.image()[: len(program.commands)] == program.commands
    ranges = [(0, len(program.commands), "program")]
    ranges += [(t.offset, t.offset + t.size, t.name) for t in program.tensors.values()]
    ranges.sort()
    for (_, end, name), (begin, _, other) in pairwise(ranges):
        assert end <= begin, f"{name} overlaps {other}"
    assert ranges[-1][1] <= program.memory_size
    for offset, _, name in ranges:
        assert offset % program.config.granule_bytes == 0, name


def test_statistics(program):
    first, second = program.stages
    assert first.macs == 4 * 16 * 6 * 27
    assert second.macs == 4 * 5 * 96
    # 4 x 4 array: 1 block of channels for 3, 2 column tiles for 6 outputs, 9 kernel positions.
    assert first.vector_cycles == 4 * 16 * 9 * 2
    assert first.efficiency == first.macs / (first.vector_cycles * 16)


def test_show_saved_program(program, tmp_path, run):
    path = tmp_path / "program.bin"
    program.save(path)
    status, output, errors = run("--show", str(path))
    assert status == 0, errors
    lines = output.splitlines()
    assert len(lines) == len(program.command_list)
    assert lines[-1].split() == [str(len(lines) - 1), "-", "HALT"]
    assert any("MATMUL" in line and "wait=c0.load->matmul" in line for line in lines)
    assert any("WEIGHTS" in line and "wait=c0.load->weights" in line for line in lines)
    assert any("LOAD" in line and "(input+0x0)" in line for line in lines)
    assert any("core1 STORE" in line and "(3+0x0)" in line for line in lines)


def test_show_raw_commands(program, tmp_path, run):
    path = tmp_path / "raw.bin"
    path.write_bytes(program.commands)
    status, output, errors = run("--show", str(path))
    assert status == 0, errors
    assert len(output.splitlines()) == len(program.command_list)


def test_plan(program, tmp_path, run):
    path = tmp_path / "program.bin"
    program.save(path)
    status, output, errors = run("--plan", str(path))
    assert status == 0, errors
    assert "stage1: 3 linear: 1920 MACs" in output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no program"),
        (b"abc", "multiple of 64 bytes, not 3"),
        (b"PK broken", "is damaged"),
        (encode(Opcode.HALT) + bytes(64), "command 1: undefined command 0x00"),
        (None, "No such file or directory"),
    ],
)
def test_bad_files(content, message, tmp_path, run):
    path = tmp_path / "bad.bin"
    if content is not None:
        path.write_bytes(content)
    status, _, errors = run("--show", str(path))
    assert status == 2
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_as_a_module():
    command = [sys.executable, "-m", "compiler", "--show", "does/not/exist"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "error: does/not/exist: No such file or directory\n"


def test_taps_of_some_input_channels_are_one_transfer():
    """Those of a K tile lie side by side, whatever part of the output channels it has."""
    tensor = Tensor.dense("w", (3, 3, 64, 24), kind="bf16", pitch=24, order=TAPS_TOGETHER)
    (move,) = transfers(tensor, (0, 3), (0, 3), (12, 36), (8, 16), 16)
    assert move.dram_address == (12 * 9 * 24 + 8) * 2
    assert (move.run_bytes, move.run_count, move.run_stride) == (16, 24 * 9, 48)
    (move,) = transfers(tensor, (0, 3), (0, 3), (5, 7), (0, 24), 16)
    assert (move.dram_address, move.run_bytes, move.run_count) == (5 * 9 * 48, 2 * 9 * 48, 1)


@pytest.mark.parametrize("order", [IN_ORDER, (2, 0, 1)])
def test_pack_and_unpack(order):
    tensor = Tensor(
        name="t", offset=16, size=2 * 3 * 8 * 2, shape=(1, 2, 3, 5), pitch=8, kind="bf16", stage=0,
        order=order,
    )  # fmt: skip
    values = np.arange(30, dtype=np.float32).reshape(1, 2, 3, 5) - 12
    data = tensor.pack(values)
    assert len(data) == tensor.size
    codes = tensor.unpack(bytes(16) + data)
    np.testing.assert_array_equal(tensor.values(codes), values)
    assert tensor.pack(codes) == data
    with pytest.raises(ValueError, match=r"t has shape \(1, 2, 3, 5\), not \(5,\)"):
        tensor.pack(values[0, 0, 0])


@pytest.mark.parametrize("order", [IN_ORDER, TAPS_TOGETHER, (1, 0, 2)])
def test_transfers_reach_every_byte_once(order, rng):
    """Against plain indexing, for boxes of all kinds."""
    shape, pitch, word_bytes = (3, 5, 4, 11), 12, 8
    size = 3 * 5 * 4 * pitch * 2
    tensor = Tensor(name="t", offset=64, size=size, shape=shape, pitch=pitch, kind="bf16", stage=0,
                    order=order)  # fmt: skip
    data = np.arange(64 + size) % 251
    for _ in range(200):
        box = [sorted(rng.choice(n + 1, 2, replace=False).tolist()) for n in (3, 5, 4)]
        channels = [(0, 12), (0, 4), (4, 12), (8, 12), (0, 8)][rng.integers(5)]
        got, word = [], 0
        for move in transfers(tensor, *box, channels, word_bytes):
            assert move.word == word
            word += move.words
            for run_index in range(move.run_count):
                begin = move.dram_address + run_index * move.run_stride
                got.append(data[begin : begin + move.run_bytes])
            assert move.run_bytes % move.row_bytes == 0
        sizes = [shape[axis] for axis in order]
        pixels = data[64:].reshape(*sizes, pitch * 2).transpose(*np.argsort(order), 3)
        (n0, n1), (h0, h1), (w0, w1) = box
        expected = pixels[n0:n1, h0:h1, w0:w1, channels[0] * 2 : channels[1] * 2]
        expected = expected.transpose(*order, 3)
        np.testing.assert_array_equal(
            np.concatenate(got), expected.reshape(-1), str((box, channels))
        )
        assert word == expected[..., 0].size * ((channels[1] - channels[0]) * 2 // word_bytes)


@pytest.mark.parametrize("step", [2, 3])
def test_some_lines_and_columns(step, rng):
    """Of a tensor, as a tensor of its own."""
    whole = Tensor.dense("t", (2, 6, 12, 11), kind="bf16", pitch=12, offset=32)
    memory = rng.integers(0, 256, 32 + whole.size, np.uint8).tobytes()
    some = replace(whole, shape=(2, 6 // step, 12 // step, 11), line_step=step, stride=step * 12)
    pixels = whole.unpack(memory)[:, ::step, ::step]
    np.testing.assert_array_equal(some.unpack(memory), pixels)
    for box in (some.pixels, ((1, 2), (1, 2), (0, 3)), ((0, 2), (0, 1), (1, 2))):
        moves = transfers(some, *box, (0, 12), 8)
        starts = [m.dram_address + n * m.run_stride for m in moves for n in range(m.run_count)]
        (size,) = {move.run_bytes for move in moves}
        got = b"".join(memory[start : start + size] for start in starts)
        found = np.frombuffer(got, "<u2").reshape(-1, 12)[:, :11]
        expected = pixels[tuple(slice(*part) for part in box)]
        np.testing.assert_array_equal(found, expected.reshape(-1, 11), str(box))


def test_commands_of_the_sequencer_as_text():
    places = {"bp_even": 0x40, "bp_odd": 0x80, "gp_even": 0x10000, "gp_odd": 0xFFFFFFC0}
    commands = encode(Opcode.BATCH, first=1, **places) + encode(Opcode.HALT)
    assert list(disassemble(commands)) == [
        "     0 -     BATCH first=1 bp_even=0x40 bp_odd=0x80 gp_even=0x10000 gp_odd=0xffffffc0",
        "     1 -     HALT",
    ]


def test_loops_as_text():
    """Bodies are indented, strides of 0 are not shown, and REPEAT says where it goes."""

    def transfer(**strides):
        return encode(Opcode.LOAD, buffer_address=0, dram_address=0, run_bytes=8, row_bytes=8,
                      **strides)  # fmt: skip

    stream = [
        transfer(),
        transfer(loop1_stride=64),
        transfer(loop0_stride=-8, loop3_stride=16),
        encode(Opcode.REPEAT, level=0, count=3, first=0x80),
        encode(Opcode.REPEAT, level=1, count=1 << 31, first=0x40),
        encode(Opcode.REPEAT, level=3, count=1, first=0x1000),
        encode(Opcode.REPEAT, level=2, count=1, first=0x7),
    ]
    load = ("wait=- signal=- buffer_address=0x0 run_count=1 run_bytes=8 run_stride=0 row_bytes=8 "
            "dram_address=0x0")  # fmt: skip
    assert list(disassemble(b"".join(stream))) == [
        f"     0 core0 LOAD    {load}",
        f"     1   core0 LOAD    {load} loop1_stride=64",
        f"     2     core0 LOAD    {load} loop0_stride=-8 loop3_stride=16",
        "     3   -     REPEAT level=0 count=3 first=0x80 (from command 2)",
        "     4 -     REPEAT level=1 count=2147483648 first=0x40 (from command 1)",
        "     5 -     REPEAT level=3 count=1 first=0x1000",
        "     6 -     REPEAT level=2 count=1 first=0x7",
    ]
