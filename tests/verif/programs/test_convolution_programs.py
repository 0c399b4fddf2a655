"""Products of convolutions on the whole accelerator against golden, bit for bit.

Covers: compiler/codegen/core_builder.py, compiler/kernels/convolution/blocked_cut.py,
compiler/kernels/convolution/blocked_product.py, compiler/kernels/convolution/blocked_sizes.py,
compiler/kernels/convolution/conv_forward.py,
compiler/kernels/convolution/conv_input_gradient.py,
compiler/kernels/convolution/conv_weight_gradient.py,
compiler/kernels/convolution/conv_weight_gradient_ranges.py,
compiler/kernels/convolution/conv_weight_gradient_pieces.py,
compiler/kernels/convolution/gathered_pixels.py.
"""

from dataclasses import replace

import numpy as np
import pytest

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.dependencies import Recorder
from compiler.kernels.convolution.conv_forward import _Forward
from compiler.kernels.convolution.conv_input_gradient import _InputGradient
from compiler.kernels.convolution.conv_weight_gradient_tiling import WeightGradientPlan
from compiler.kernels.convolution.gathered_pixels import Gathered
from compiler.kernels.convolution.reorganize import Reorganizer
from emulator.interpreter import interpret
from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32_unit import VectorUnit, widen
from golden.arithmetic.formats import FLOAT32, format_by_name
from golden.layers.batch_norm import part_statistics
from golden.layers.conv_general import block_diagonal, convolution
from golden.layers.conv_gradients import bias_gradient, input_gradient, weight_gradient
from golden.layers.elementwise_pool import round_sums
from golden.prediction.arithmetic import reorganize_map
from hw.config import make_config
from hw.isa.encoding import Opcode
from verif.programs.convolution_programs import ConvolutionProgram
from verif.system import accelerator
from verif.system.record import BASE

#: Shape, outputs, kernel, stride, padding, dilation, groups.
CASES = {
    "1x1": ((2, 3, 5, 5), 7, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    "3x3": ((2, 5, 6, 9), 7, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    "3x3, stride 2, rest": ((1, 8, 7, 4), 11, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    "1x1, stride 2: phases without taps": ((2, 5, 6, 3), 5, (1, 1), (2, 2), (0, 0), (1, 1), 1),
    "1x1, stride 2: every second pixel": ((3, 4, 6, 9), 7, (1, 1), (2, 2), (0, 0), (1, 1), 1),
    "1x1, strides 1 and 3": ((2, 3, 6, 5), 4, (1, 1), (1, 3), (0, 0), (1, 1), 1),
    "3x2, strides 1 and 2, no padding": ((1, 6, 7, 5), 3, (3, 2), (1, 2), (0, 0), (1, 1), 1),
    "dilation": ((1, 7, 9, 3), 4, (3, 2), (2, 1), (2, 1), (2, 3), 1),
    "groups": ((2, 5, 5, 12), 9, (3, 3), (1, 1), (1, 1), (1, 1), 3),
    "1x1, several column tiles": ((4, 6, 9, 10), 18, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    "one image, several column tiles": ((1, 12, 8, 5), 14, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    "linear: the kernel is the map": ((9, 2, 2, 6), 10, (2, 2), (2, 2), (0, 0), (1, 1), 1),
}
ARRAYS = {
    "tiny": {},
    "5x3": {"rows": 5, "columns": 3},
    "3x7": {"rows": 3, "columns": 7},
    "fp8": {"rows": 6, "columns": 4, "operand_format": "fp8_e5m2"},
}


def config_of(array):
    return make_config(variant="baseline", preset="tiny", **ARRAYS[array])


def stimulus(config, program, rng):
    """Codes of x, dy, weights and bias, and what golden makes of them."""
    fmt = format_by_name(config.operand_format)

    def codes(*shape):
        values = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape))
        return encode(fmt, np.where(rng.random(shape) < 0.1, 0, values))

    x, dy = codes(*program.shape), codes(program.shape[0], *program.map, program.outputs)
    groups = program.groups
    weights = codes(program.outputs, program.shape[3] // groups, *program.kernel)
    bias = encode(FLOAT32, rng.standard_normal(program.outputs))
    geometry = {"stride": program.stride, "padding": program.padding, "dilation": program.dilation}
    geometry["groups"] = groups
    rows, array = config.rows, {"rows": config.rows, "columns": config.columns}
    y, _ = convolution(fmt, x, weights, bias, **array, **geometry)
    dx, _ = input_gradient(fmt, dy, weights, input_size=program.shape[1:3], **array, **geometry)
    taps = weights.reshape(*weights.shape[:2], -1)
    dense = np.stack([block_diagonal(tap, groups) for tap in np.moveaxis(taps, 2, 0)], -1)
    dense = dense.reshape(program.outputs, program.shape[3], *program.kernel)
    y = round_sums(fmt, y)[0]
    size = program.map_size
    cells = reorganize_map(VectorUnit(), widen(fmt, y), size).reshape(1, size, size, -1)
    return (x, dy, dense, bias), {
        "y": y,
        "cells": cells,
        "statistics": part_statistics(fmt, y)[0],
        "dx": round_sums(fmt, dx)[0],
        "dw": weight_gradient(fmt, x, dy, kernel=program.kernel, rows=rows, **geometry)[0],
        "db": bias_gradient(fmt, dy, rows=rows)[0],
    }


def compare(program, memory, expected, where):
    for name, actual in program.results(memory).items():
        if name == "dw":
            # Between groups there may be anything.
            outputs, inputs = program.outputs // program.groups, expected[name].shape[1]
            actual = np.concatenate(
                [
                    actual[g * outputs : (g + 1) * outputs, g * inputs : (g + 1) * inputs]
                    for g in range(program.groups)
                ]
            )
        wrong = np.argwhere(actual != expected[name])
        if len(wrong):
            place = tuple(int(index) for index in wrong[0])
            got, want = (int(part[place]) for part in (actual, expected[name]))
            raise AssertionError(
                f"{where}: {name}{place} is {got:#x}, expected {want:#x}; "
                f"{len(wrong)} of {actual.size} are wrong"
            )


def check(program, rng, seed, where):
    """Run a program on random numbers, in a random order; its results have to be golden's."""
    codes, expected = stimulus(program.config, program, rng)
    memory = bytearray(program.image(*codes))
    result = interpret(
        program.config, program.program, memory, seed=seed, unwritten=program.unwritten
    )
    assert not result.semaphores, where
    compare(program, bytes(memory), expected, where)


def programs(config):
    for name, (shape, outputs, kernel, stride, padding, dilation, groups) in CASES.items():
        yield name, ConvolutionProgram(
            config=config, shape=shape, outputs=outputs, kernel=kernel, stride=stride,
            padding=padding, dilation=dilation, groups=groups,
        )  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS)
def test_interpreter(array, rng, seed):
    for name, program in programs(config_of(array)):
        check(program, rng, seed, name)


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize(("size", "words", "least"), [(4, 2048, 8), (3, 1024, 6), (1, 512, 2)])
def test_maps_reorganized_on_their_way(array, size, words, least, rng, seed):
    """Of a product's tiles, which are some images or some lines of one, all are added up while they
    are on chip: nothing reads the map, unless there is too little room for all of it."""
    config = make_config(
        variant="low", preset="tiny", **ARRAYS[array], accumulator_depth=32,
        buffer_bank_depth=words // 4,
    )  # fmt: skip
    checked = 0
    for name, program in programs(config):
        program = replace(program, parts=("y", "cells"), map_size=size)
        if Reorganizer.held_words(program.core, program.tensors["y"]) * 4 > words:
            continue
        check(program, rng, seed, name)
        y = program.tensors["y"]
        read = [
            command.fields["dram_address"] - y.offset
            for command in program.commands
            if command.opcode is Opcode.LOAD
        ]
        checked += not any(0 <= place < y.size for place in read)
    assert checked >= least


@pytest.mark.parametrize("name", ["1x1, several column tiles", "one image, several column tiles"])
def test_maps_that_do_not_fit(name, rng, seed):
    """Pieces of the weight gradient are loaded for every batch of column tiles."""
    config = make_config(variant="baseline", preset="tiny", buffer_bank_depth=64)
    program = dict(programs(config))[name]
    writer = CoreProgram(config, config.cores[0], Recorder(config))
    tensors = program.tensors
    plan = WeightGradientPlan(writer, program.layer, *(tensors[n] for n in ("dy", "dw", "db")))
    assert not plan.whole and len(plan.pieces) > 1
    check(program, rng, seed, name)


#: Fields, shape, outputs, kernel, stride, padding, dilation: pieces that begin and end within an
#: image whose pixels are no whole K tiles. Pixels of a gathered item, or that there is none; column
#: tiles of a range; columns of the kernel in a range.
CUTS = {
    "lines": (
        {"rows": 5, "columns": 3, "buffer_bank_depth": 64},
        ((3, 7, 6, 4), 5, (3, 3), (1, 1), (1, 1), (1, 1)), (6, 2, 3),
    ),
    "lines, strided": (
        {"rows": 3, "columns": 7, "buffer_bank_depth": 32},
        ((3, 9, 8, 4), 9, (3, 3), (2, 2), (1, 1), (1, 1)), (4, 1, 3),
    ),
    "lines, dilated": (
        {"rows": 5, "columns": 3, "buffer_bank_depth": 32},
        ((2, 9, 9, 4), 5, (3, 2), (1, 1), (2, 1), (2, 3)), (8, 2, 2),
    ),
    "pixels": (
        {"buffer_bank_depth": 16}, ((2, 2, 30, 4), 5, (3, 3), (1, 1), (1, 1), (1, 1)), (1, 1, 3)
    ),
    "pixels, strided": (
        {"rows": 5, "columns": 3, "buffer_bank_depth": 16},
        ((2, 4, 30, 4), 5, (2, 3), (2, 2), (1, 1), (1, 2)), (1, 2, 3),
    ),
    "lines, tight": (
        {"buffer_bank_depth": 32}, ((2, 5, 11, 5), 5, (3, 3), (1, 1), (1, 1), (1, 1)), (11, 1, 3)
    ),
    "lines, tight, several tiles": (
        {"rows": 5, "columns": 3, "buffer_bank_depth": 64},
        ((2, 6, 8, 5), 14, (3, 3), (1, 1), (1, 1), (1, 1)), (8, 5, 3),
    ),
    "lines, tight, kernel rows apart": (
        {"buffer_bank_depth": 64}, ((2, 4, 17, 8), 20, (3, 3), (1, 1), (1, 1), (1, 1)), (None, 1, 3)
    ),
    "many outputs": (
        {"buffer_bank_depth": 16}, ((2, 3, 3, 4), 70, (1, 1), (1, 1), (0, 0), (1, 1)), (None, 1, 1)
    ),
    "all taps of few outputs": (
        {"buffer_bank_depth": 128}, ((3, 4, 4, 4), 40, (3, 3), (1, 1), (1, 1), (1, 1)),
        (None, 1, 3),
    ),
    "wide kernel": (
        {"accumulator_depth": 16}, ((2, 3, 8, 4), 6, (3, 8), (1, 1), (0, 0), (1, 1)), (None, 2, 2)
    ),
    "lines, tall kernel": (
        {"buffer_bank_depth": 32}, ((2, 9, 9, 12), 5, (5, 1), (1, 1), (2, 0), (1, 1)), (9, 1, 1)
    ),
    "every second line and column": (
        {"rows": 5, "columns": 3, "buffer_bank_depth": 16},
        ((2, 8, 12, 13), 8, (1, 1), (2, 2), (0, 0), (1, 1)), (1, 3, 1),
    ),
    "many outputs of many inputs": (
        {"buffer_bank_depth": 64}, ((12, 1, 1, 16), 140, (1, 1), (1, 1), (0, 0), (1, 1)),
        (None, 1, 1),
    ),
}  # fmt: skip


#: Fields, shape, outputs, kernel, stride, padding, dilation, groups: lines, weights or results that
#: do not fit. What is cut: columns of the map, the channels that are stored, words of the
#: contraction's channels, rows and columns of its taps.
BLOCKED = {
    "columns": (
        {"rows": 5, "columns": 3, "buffer_bank_depth": 32},
        ((1, 6, 20, 12), 9, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    ),
    "taps": (
        {"rows": 3, "columns": 7, "buffer_bank_depth": 32},
        ((1, 7, 9, 7), 8, (3, 2), (2, 1), (2, 1), (2, 3), 1),
    ),
    "phases without taps": (
        {"rows": 5, "columns": 3, "buffer_bank_depth": 16},
        ((2, 5, 6, 13), 25, (1, 1), (2, 2), (0, 0), (1, 1), 1),
    ),
    "linear": (
        {"buffer_bank_depth": 16}, ((3, 3, 3, 13), 25, (3, 3), (3, 3), (0, 0), (1, 1), 1)
    ),
    "groups": (
        {"rows": 5, "columns": 3, "buffer_bank_depth": 32},
        ((1, 4, 5, 24), 12, (3, 3), (1, 1), (1, 1), (1, 1), 3),
    ),
    "fp8": (
        {"rows": 6, "columns": 4, "operand_format": "fp8_e5m2", "buffer_bank_depth": 16},
        ((1, 3, 7, 14), 5, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ),
}  # fmt: skip


def small_program(fields, layer, parts):
    shape, outputs, kernel, stride, padding, dilation, groups = (*layer, 1)[:7]
    config = make_config(**{"variant": "baseline", "preset": "tiny"} | fields)
    return ConvolutionProgram(
        config=config, shape=shape, outputs=outputs, kernel=kernel, stride=stride, padding=padding,
        dilation=dilation, groups=groups, parts=parts,
    )  # fmt: skip


def cut_program(name):
    return small_program(*CUTS[name][:2], ("dw",))


@pytest.mark.parametrize("name", BLOCKED)
def test_products_in_blocks(name, rng, seed):
    program = small_program(*BLOCKED[name], ("y", "dx"))
    writer = CoreProgram(program.config, program.core, Recorder(program.config))
    for plain in (
        _Forward(writer, program.layer, False, None),
        _InputGradient(writer, program.layer, program.tensors["dy"], program.tensors["dx"], 1.0),
    ):
        assert plain.cut() is None
    check(program, rng, seed, name)


@pytest.mark.parametrize("name", CUTS)
def test_weight_gradients_in_parts(name, rng, seed):
    program = cut_program(name)
    writer = CoreProgram(program.config, program.core, Recorder(program.config))
    tensors = program.tensors
    plan = WeightGradientPlan(writer, program.layer, *(tensors[n] for n in ("dy", "dw", "db")))
    gathered = {piece.width for piece in plan.pieces if isinstance(piece, Gathered)}
    part = plan.ranges[0]
    width, tiles, columns = CUTS[name][2]
    assert gathered == ({width} if width else set())
    assert (part.tiles[1] - part.tiles[0], part.columns[1] - part.columns[0]) == (tiles, columns)
    check(program, rng, seed, name)


@pytest.mark.long
def test_parts_on_the_accelerator(rng, seed):
    """Gathered lines; then products in blocks."""
    blocked = ((1, 4, 12, 30), 33, (3, 3), (2, 2), (1, 1), (1, 1))
    programs = [cut_program("lines"), small_program(CUTS["lines"][0], blocked, ("y", "dx"))]
    runs, wanted = [], []
    for program in programs:
        codes, expected = stimulus(program.config, program, rng)
        runs.append(accelerator.Run(image=program.image(*codes), program_size=len(program.program)))
        wanted.append(expected)
    config, largest = programs[0].config, max(len(run.image) for run in runs)
    simulator = accelerator.build(config, memory_bytes=BASE + largest)
    outcomes, _ = accelerator.run(
        simulator, runs, seed=seed, stall_share=0.2, latency=10, timeout_cycles=400_000
    )
    for program, expected, outcome in zip(programs, wanted, outcomes, strict=True):
        record = outcome.record
        assert record.done and not record.error, f"{record.code} of {record.unit}"
        compare(program, outcome.memory, expected, str(program.parts))


@pytest.mark.parametrize("array", ["tiny", pytest.param("5x3", marks=pytest.mark.long)])
def test_accelerator(array, rng, seed):
    """All cases one after the other without a reset, on a memory that stalls; with the statistics
    of every output's parts."""
    config = config_of(array)
    runs, wanted = [], []
    for name, program in programs(config):
        program = replace(program, parts=("y", "statistics", "dx", "dw"))
        codes, expected = stimulus(config, program, rng)
        runs.append(accelerator.Run(image=program.image(*codes), program_size=len(program.program)))
        wanted.append((name, program, expected))
    largest = max(len(run.image) for run in runs)
    simulator = accelerator.build(config, memory_bytes=BASE + largest)
    outcomes, _ = accelerator.run(
        simulator, runs, seed=seed, stall_share=0.2, latency=10, timeout_cycles=200_000
    )
    for (name, program, expected), outcome in zip(wanted, outcomes, strict=True):
        record = outcome.record
        assert record.done and not record.error, f"{name}: {record.code} of {record.unit}"
        compare(program, outcome.memory, expected, name)


def test_the_comparison_can_fail(rng, seed):
    config = config_of("tiny")
    name, program = next(programs(config))
    codes, expected = stimulus(config, program, rng)
    memory = bytearray(program.image(*codes))
    interpret(config, program.program, memory, seed=seed)
    memory[program.tensors["dw"].offset] ^= 1
    with pytest.raises(AssertionError, match=r"dw\(0, 0, 0, 0\) is 0x"):
        compare(program, bytes(memory), expected, name)
