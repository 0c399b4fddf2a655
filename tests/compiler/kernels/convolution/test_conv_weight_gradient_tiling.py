"""How weight gradients are cut at the paper's sizes; tests/verif/programs has their numbers."""

from itertools import pairwise

import pytest

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.dependencies import Recorder
from compiler.errors import CompileError
from compiler.kernels.convolution.conv_weight_gradient_tiling import WeightGradientPlan
from hw.config import make_config
from hw.isa.encoding import Opcode
from verif.programs.convolution_programs import ConvolutionProgram


def test_a_tap_does_not_fit_into_the_accumulators():
    config = make_config(
        variant="baseline", preset="tiny", rows=20, columns=4, accumulator_depth=16
    )
    program = ConvolutionProgram(
        config=config, shape=(1, 2, 2, 4), outputs=4, kernel=(1, 1), parts=("dw",)
    )
    with pytest.raises(CompileError, match=r"of a tap .* into the accumulators \(16 vectors\)"):
        _ = program.commands


def plan_of(**options):
    """A weight gradient cut at the paper's sizes."""
    program = ConvolutionProgram(config=make_config(variant="baseline"), **options)
    writer = CoreProgram(program.config, program.core, Recorder(program.config))
    return WeightGradientPlan(
        writer, program.layer, *(program.tensors[name] for name in ("dy", "dw", "db"))
    )


def test_no_last_piece_is_short():
    """While it is computed, results of the tiles before are posted."""
    for shape, outputs, kernel, padding in (
        ((128, 2, 2, 512), 512, (3, 3), (1, 1)),
        ((16, 4, 4, 1024), 2048, (1, 1), (0, 0)),
        ((16, 32, 32, 64), 256, (1, 1), (0, 0)),
    ):
        plan = plan_of(shape=shape, outputs=outputs, kernel=kernel, padding=padding)
        assert not plan.whole and plan.room.late
        sizes = [plan.pixels(piece) for piece in plan.pieces]
        assert sizes[-1] >= 5 * 12 and max(sizes) - sizes[-1] <= 3 * 12, sizes
        first = [plan.pixels(piece) for piece in plan.short_first(plan.pieces)]
        assert first[0] <= 8 * 12 and sum(first) == sum(sizes)


def test_few_column_tiles_with_many_channels():
    """Pieces that have to come again for other column tiles come less often, and dY's tiles are
    not waited for."""
    plan = plan_of(shape=(16, 16, 16, 128), outputs=512, kernel=(1, 1))
    part = plan.ranges[0]
    assert part.blocks == (0, 11) and part.tiles[1] - part.tiles[0] <= 8


def test_pixels_that_nobody_reads_are_not_loaded():
    """Of a kernel of one pixel with strides, if these divide the map."""
    for shape, loaded in (((4, 8, 8, 64), 4), ((4, 7, 7, 64), 1)):
        program = ConvolutionProgram(
            config=make_config(variant="baseline"), shape=shape, outputs=64, kernel=(1, 1),
            stride=(2, 2), parts=("dw",),
        )  # fmt: skip
        x, count = program.tensors["x"], 0
        for command in program.commands:
            fields = command.fields
            if command.opcode is Opcode.LOAD and 0 <= fields["dram_address"] - x.offset < x.size:
                count += fields["run_bytes"] * fields["run_count"]
        assert count == x.size // loaded


def test_pieces_grow():
    """The first is small; none is larger than what is computed while it is loaded."""
    plan = plan_of(shape=(8, 16, 16, 32), outputs=32, kernel=(1, 1))
    assert plan.whole and plan.layer.images == 1
    lines = [end - begin for _, (begin, end) in plan.pieces]
    assert sum(lines) == 8 * 16 and lines[0] == 3
    # 37 vectors of three column tiles for 12 pixels, which are 6 words each.
    ratio = 3 * 37 / (12 * 6)
    for before, after in pairwise(lines):
        assert before % 3 == 0 and after <= max(3, before) * ratio + 3, lines
