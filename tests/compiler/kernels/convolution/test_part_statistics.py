"""Statistics of a product's images, which are taken while the product goes on, bit for bit.

Covers: compiler/kernels/tiling/late_work.py.
"""

from dataclasses import replace

import pytest

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.dependencies import Recorder
from compiler.kernels.convolution import conv_forward
from compiler.kernels.convolution.blocked_cut import Cut
from compiler.kernels.convolution.part_statistics import PartStatistics, part_lines
from golden.layers import batch_norm as golden
from hw.config import make_config
from hw.isa.encoding import Opcode
from tests.verif.programs.test_convolution_programs import (
    ARRAYS,
    check,
    config_of,
    programs,
)
from verif.programs.convolution_programs import ConvolutionProgram

#: Shape of the input, outputs, accumulators and words of a bank: parts of an image, or several
#: images; some beside such as are whole; lines that do not have a multiple of eight pixels.
CUTS = {
    "lines": ((3, 8, 8, 3), 6, 16, 128),
    "lines of five pixels": ((3, 7, 5, 4), 9, 16, 128),
    "groups of images": ((5, 8, 8, 3), 6, 64, 128),
    "whole images": ((20, 4, 4, 3), 10, 64, 128),
    "lines, one column tile": ((9, 6, 6, 3), 4, 16, 128),
    "one image": ((1, 6, 6, 3), 6, 64, 128),
    "images of one pixel": ((9, 1, 1, 6), 10, 16, 128),
}


@pytest.mark.parametrize("array", ARRAYS)
def test_every_convolution(array, rng, seed):
    for name, program in programs(config_of(array)):
        check(replace(program, parts=("y", "statistics")), rng, seed, f"{array}, {name}")


@pytest.mark.parametrize("loops", [False, True], ids=["written out", "loops"])
@pytest.mark.parametrize("name", CUTS)
def test_tiles(name, loops, rng, seed):
    """However a product is cut; where tiles are whole images, nothing reads its map again."""
    shape, outputs, depth, words = CUTS[name]
    config = make_config(
        variant="baseline", preset="tiny", accumulator_depth=depth, buffer_bank_depth=words
    )
    padding = (0, 0) if shape[1:3] == (1, 1) else (1, 1)
    kernel = tuple(1 + 2 * size for size in padding)
    program = ConvolutionProgram(
        config=config, shape=shape, outputs=outputs, kernel=kernel, padding=padding,
        parts=("y", "statistics"), loops=loops,
    )  # fmt: skip
    check(program, rng, seed, name)
    y = program.tensors["y"]
    loads = [c.fields["dram_address"] for c in program.commands if c.opcode is Opcode.LOAD]
    again = any(y.offset <= place < y.offset + y.size for place in loads)
    assert again == name.startswith("lines")


@pytest.mark.parametrize("whole", [True, False])
def test_boxes_of_the_contraction(whole, rng, seed, monkeypatch):
    """In boxes of whole parts statistics are taken on the way; else the map is read again."""
    config = make_config(variant="baseline", preset="tiny", accumulator_depth=64)
    program = ConvolutionProgram(
        config=config, shape=(6, 4, 4, 12), outputs=14, kernel=(3, 3), padding=(1, 1),
        parts=("y", "statistics"),
    )  # fmt: skip
    seen = []

    def boxes(blocked, *others, **more):
        cut, _ = blocked.plan()
        jobs = blocked.jobs(cut if whole else replace(cut, rows=1))
        seen.append(blocked.looks)
        return jobs

    monkeypatch.setattr(conv_forward, "blocked_jobs", boxes)
    check(program, rng, seed, f"whole boxes: {whole}")
    assert seen == [whole]


def vectors(program):
    return sum(command.opcode is Opcode.VECTOR for command in program.commands)


@pytest.mark.parametrize("parts", [("y", "statistics"), ("y", "cells", "statistics")])
@pytest.mark.parametrize("shape", [(100, 1, 1, 6), (70, 2, 2, 5), (64, 3, 2, 4)])
def test_small_images_in_hwnc(shape, parts, rng, seed):
    """One command makes the sums of all images: there are fewer commands than images."""
    config = make_config(
        variant="low", preset="tiny", accumulator_depth=512, buffer_bank_depth=2048
    )
    program = ConvolutionProgram(
        config=config, shape=shape, outputs=10, kernel=(1, 1), parts=parts, map_size=1
    )
    check(program, rng, seed, f"{shape}")
    if "cells" not in parts:
        assert vectors(program) < shape[0]


@pytest.mark.parametrize("loops", [False, True], ids=["written out", "loops"])
def test_small_images_in_hwnc_in_boxes(loops, rng, seed, monkeypatch):
    """The same in groups of column tiles and boxes of the contraction, so many that results of one
    group are gone when those of the next one come: there is no room for both."""
    config = make_config(
        variant="baseline", preset="tiny", accumulator_depth=256, buffer_bank_depth=512
    )
    program = ConvolutionProgram(
        config=config, shape=(56, 2, 2, 48), outputs=32, kernel=(3, 3), padding=(1, 1),
        parts=("y", "statistics"), loops=loops,
    )  # fmt: skip
    seen = []

    def boxes(blocked, *others, **more):
        cut = Cut(56, 2, 2, 2, 2, 3, 3)
        jobs = blocked.jobs(cut)
        out, *_, inputs = blocked.box_words(cut, blocked.spans(cut))
        out += blocked.statistics.room((0, 56), blocked.largest(cut))
        seen.append((blocked.looks, 2 * out + inputs > blocked.program.scratch.words))
        return jobs

    monkeypatch.setattr(conv_forward, "blocked_jobs", boxes)
    check(program, rng, seed, f"loops: {loops}")
    assert seen and set(seen) == {(True, True)}


def test_what_looking_costs():
    """The array waits where a group has more to look at than there is time before the next results;
    what is behind the last ones counts where it is much."""
    program = ConvolutionProgram(
        config=make_config(variant="baseline"), shape=(16, 4, 4, 256), outputs=512, kernel=(3, 3),
        padding=(1, 1), parts=("y", "statistics"),
    )  # fmt: skip
    writer = CoreProgram(program.config, program.core, Recorder(program.config))
    parts = PartStatistics(writer, program.tensors["y"], program.tensors["statistics"])
    product = conv_forward._Blocked(writer, program.layer, False, parts)
    few, many = (product.looking(Cut(16, 4, 4, group, 6, 3, 3), 1_800_000.0) for group in (5, 18))
    assert 0 <= few < many
    short = product.looking(Cut(16, 4, 4, 18, 6, 3, 3), 18_000.0)
    assert short > many


def test_long_iterations(rng, seed):
    """What is done late is still there where an iteration of a loop begins, with an empty
    memory."""
    config = make_config(variant="baseline", preset="tiny")
    program = ConvolutionProgram(
        config=config, shape=(96, 4, 4, 4), outputs=100, kernel=(3, 3), padding=(1, 1),
        parts=("y", "statistics"), loops=True,
    )  # fmt: skip
    assert any(command.opcode is Opcode.REPEAT for command in program.commands)
    check(program, rng, seed, "long iterations")


@pytest.mark.parametrize("outputs", [64, 256])
def test_maps_are_not_read_again_in_vain(outputs):
    """Boxes of few lines are quicker without statistics, but not with them."""
    program = ConvolutionProgram(
        config=make_config(variant="baseline"), shape=(16, 32, 32, 64), outputs=outputs,
        kernel=(1, 1), parts=("y", "statistics"), loops=True,
    )  # fmt: skip
    y = program.tensors["y"]
    loads = [c.fields["dram_address"] for c in program.commands if c.opcode is Opcode.LOAD]
    assert loads and not any(y.offset <= place < y.offset + y.size for place in loads)


def test_work_that_waits_is_done_before_more_comes():
    """Of a group of column tiles there is more to do late than the next one has jobs; the compiler
    itself sees whether blocks are still there then."""
    program = ConvolutionProgram(
        config=make_config(variant="baseline"), shape=(128, 4, 4, 256), outputs=512,
        kernel=(3, 3), padding=(1, 1), parts=("y", "statistics"), loops=True,
    )  # fmt: skip
    assert any(command.opcode is Opcode.REPEAT for command in program.commands)


@pytest.mark.parametrize(
    ("words", "depth", "shape", "outputs"),
    [
        (16, 16, (5, 2, 2, 3), 37), (16, 64, (16, 2, 2, 40), 16), (64, 32, (16, 1, 1, 40), 37),
        (32, 64, (33, 1, 1, 8), 6), (128, 16, (33, 1, 1, 8), 37),
    ],
)  # fmt: skip
def test_little_room(words, depth, shape, outputs, rng, seed):
    """Results that are looked at have no room beside the next ones: the map is read again."""
    config = make_config(
        variant="baseline", preset="tiny", accumulator_depth=depth, buffer_bank_depth=words
    )
    program = ConvolutionProgram(
        config=config, shape=shape, outputs=outputs, kernel=(1, 1), parts=("y", "statistics")
    )
    check(program, rng, seed, f"{words} words a bank, {shape}")


def test_parts_are_golden_s():
    """Golden stands alone: it has a rule of its own for the lines of a part."""
    for height in (1, 2, 7, 8, 17, 28, 32, 35, 56, 147, 224, 416):
        for width in (1, 5, 8, 17, 32, 100, 224, 416):
            lines = part_lines(height, width)
            assert lines == golden.part_lines(height, width)
            assert height % lines == 0 and (lines == 1 or lines * width <= 256)


def test_cells_and_statistics(rng, seed):
    """What the predictor needs of a map and what batch normalisation needs of it."""
    config = make_config(variant="low", preset="tiny", accumulator_depth=32, buffer_bank_depth=512)
    for name, program in programs(config):
        check(replace(program, parts=("y", "cells", "statistics")), rng, seed, name)


def test_an_array_that_always_has_something_to_do():
    """What looks at a tile comes behind a product of the next one."""
    config = make_config(variant="baseline", preset="tiny", accumulator_depth=16)
    program = ConvolutionProgram(
        config=config, shape=(4, 4, 4, 3), outputs=10, kernel=(3, 3), padding=(1, 1)
    )
    recorder = Recorder(config)
    builder = CoreProgram(config, config.cores[0], recorder)
    conv_forward.forward(builder, program.layer, statistics=program.tensors["statistics"])
    opcodes = [command.opcode for command in recorder.commands(0, len(recorder))]
    vectors = [place for place, opcode in enumerate(opcodes) if opcode is Opcode.VECTOR]
    assert len(vectors) == 3 * 4
    tiles = -(-10 // config.columns)
    for image, place in enumerate(vectors[::3]):
        products = opcodes[:place].count(Opcode.MATMUL)
        assert products == min((image + 1) * tiles + 1, 4 * tiles), image
