"""The predictor's error against golden, bit for bit, in parts of channels and rows."""

from types import SimpleNamespace

import numpy as np
import pytest

from compiler.adagp.predictor import error
from compiler.adagp.tensors import GRADIENT_STATISTICS
from compiler.errors import CompileError
from compiler.tensors.parameters import lanes
from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32_unit import VectorUnit
from golden.arithmetic.formats import FLOAT32
from golden.prediction.arithmetic import scaled_error
from hw.config import make_config
from verif.programs.layer_programs import LayerProgram

#: Fields of the configuration, and the core that works. 3 rows do not divide a granule: a part of
#: the channels is of the pitch alone.
CORES = {
    "4x4": ({"variant": "low"}, 0),
    "5x3": ({"variant": "low", "rows": 5, "columns": 3}, 0),
    "3x2 beside 4x4": ({"variant": "max", "predictor_rows": 3, "predictor_columns": 2}, 1),
    "fp8": ({"variant": "low", "rows": 6, "columns": 4, "operand_format": "fp8_e5m2"}, 0),
}


def observed_error(rng, core, *, words, rows, outputs, loops=False):
    """A gradient beside its prediction, in a buffer of so many words."""
    chosen, number = CORES[core]
    sizes = {"buffer_banks": words // 16, "buffer_bank_depth": 16}
    if number:
        sizes |= {"predictor_memory_banks": words // 16, "predictor_memory_bank_depth": 16}
    config = make_config(preset="tiny", **chosen, **sizes)
    case, unit = LayerProgram(config=config, core=number, loops=loops), VectorUnit()
    codes = encode(FLOAT32, rng.normal(size=len(GRADIENT_STATISTICS)))
    shape = (1, 1, len(codes), lanes(config))
    spread = np.broadcast_to(codes[:, np.newaxis], shape)
    gradient, prediction = (encode(FLOAT32, rng.normal(size=(rows, outputs))) for _ in range(2))
    shape = (1, rows, 1, outputs)
    stored = case.parameter("gradient", shape, gradient)
    layer = SimpleNamespace(
        name="layer", rows=rows, outputs=outputs,
        gradient_statistics=case.parameter("statistics", spread.shape, spread),
        prediction=case.parameter("prediction", shape, prediction),
        error=case.parameter("error", shape, operands=True),
    )  # fmt: skip
    case.layer(error, layer, stored)
    wanted = scaled_error(unit, case.format, gradient, prediction, codes)
    case.expect(layer.error, wanted, unit.flags)
    return case


@pytest.mark.parametrize("core", CORES)
def test_error_in_parts(core, rng, seed):
    """The whole row at a time, then parts of it."""
    lengths = {}
    for words in (256, 96, 64):
        case = observed_error(rng, core, words=words, rows=7, outputs=61)
        case.check_with_interpreter(f"{words} words", seed)
        lengths[words] = len(case.commands)
    assert lengths[64] > lengths[256]


def test_parts_in_loops(rng, seed):
    """Many rows of every part of the channels."""
    lengths = []
    for loops in (False, True):
        case = observed_error(rng, "4x4", words=96, rows=70, outputs=100, loops=loops)
        case.check_with_interpreter(f"loops {loops}", seed)
        lengths.append(len(case.commands))
    assert lengths[1] < lengths[0]


def test_a_word_does_not_fit(rng):
    case = observed_error(rng, "4x4", words=16, rows=1, outputs=1)
    message = r"layer layer: one word of its gradient, of its prediction and .* fit .* \(16 words\)"
    with pytest.raises(CompileError, match=message):
        _ = case.commands
