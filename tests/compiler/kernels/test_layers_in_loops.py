"""Layers whose jobs come again, in loops: golden's numbers, whatever runs first.

Covers: compiler/kernels/convolution/conv_forward.py,
compiler/kernels/convolution/conv_input_gradient.py, compiler/kernels/updates/update.py,
compiler/kernels/updates/braking.py,
compiler/kernels/maps/elementwise.py, compiler/kernels/tiling/row_tiling.py,
compiler/kernels/convolution/reorganize.py, compiler/kernels/normalization/batch_norm_pass.py.
"""

from dataclasses import replace

import pytest

from hw.config import make_config
from hw.isa.encoding import Opcode
from tests.verif.programs.test_convolution_programs import check
from verif.programs.convolution_programs import ConvolutionProgram
from verif.programs.layer_cases import CASES

#: Small memories, so that small maps are cut.
FIELDS = {"variant": "baseline", "preset": "tiny", "accumulator_depth": 16, "buffer_bank_depth": 64}
#: Shape of the input, outputs, kernel, stride, padding.
CONVOLUTIONS = {
    "3x3": ((30, 4, 4, 3), 6, (3, 3), (1, 1), (1, 1)),
    "stride 2": ((56, 4, 4, 3), 6, (3, 3), (2, 2), (1, 1)),
    "images of several tiles": ((16, 4, 6, 2), 3, (3, 3), (1, 1), (1, 1)),
}
#: Layer, shape, and how many loops there are at least.
LAYERS = {
    "elements": ((60, 4, 4, 3), 2),
    "average pooling": ((90, 4, 4, 3), 1),
    "normalization with ReLU": ((40, 2, 8, 3), 1),
    "normalization, known statistics": ((40, 2, 8, 3), 1),
    "descent": ((3, 3, 40, 3), 4),
    "guarded descent": ((3, 3, 40, 3), 4),
    "braked descent": ((3, 3, 40, 3), 4),
}


def repeats(program):
    return sum(command.opcode is Opcode.REPEAT for command in program.commands)


@pytest.mark.parametrize("parts", [("y",), ("y", "cells"), ("dx",)], ids=" and ".join)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, parts, rng, seed):
    shape, outputs, kernel, stride, padding = CONVOLUTIONS[name]
    config = make_config(**FIELDS)
    program = ConvolutionProgram(
        config=config, shape=shape, outputs=outputs, kernel=kernel, stride=stride, padding=padding,
        parts=parts, loops=True,
    )  # fmt: skip
    assert repeats(program) == 1
    assert len(program.commands) < len(replace(program, loops=False).commands)
    check(program, rng, seed, f"{name}: {parts}")


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, rng, seed):
    shape, least = LAYERS[name]
    config = make_config(**FIELDS)
    case = CASES[name](rng, config, shape)
    case.loops = True
    assert repeats(case) >= least
    case.check_with_interpreter(f"{name}, {shape}", seed)
