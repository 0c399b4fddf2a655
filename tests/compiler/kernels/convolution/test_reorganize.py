"""The reorganised map of the predictor against golden, bit for bit."""

import pytest

from compiler.errors import CompileError
from compiler.kernels.convolution.reorganize import pool_windows, reorganize
from golden.arithmetic.float32_unit import VectorUnit, widen
from golden.prediction import arithmetic
from golden.prediction.arithmetic import reorganize_map
from hw.config import make_config
from hw.isa.encoding import Opcode
from verif.programs.layer_cases import random_map
from verif.programs.layer_programs import LayerProgram

#: Configurations, and the core that works.
CORES = {
    "4 rows": ({"variant": "low"}, 0),
    "5 rows": ({"variant": "low", "rows": 5, "columns": 3}, 0),
    # Float32 tensors have more words than maps with as many channels.
    "6 rows beside 4": ({"variant": "max", "predictor_rows": 6}, 1),
    "3 rows beside 4": ({"variant": "max", "predictor_rows": 3}, 1),
    "fp8": ({"variant": "low", "rows": 6, "columns": 4, "operand_format": "fp8_e5m2"}, 0),
}
#: (N, H, W, O): windows that are apart, that overlap, larger than the map in one direction.
SHAPES = ((3, 8, 8, 6), (2, 7, 5, 9), (1, 1, 1, 5), (4, 2, 3, 3), (1, 9, 4, 13), (2, 1, 7, 2))


def reorganized(rng, core, shape, size, *, wide=False, **fields):
    """A program with what it should leave."""
    chosen, number = CORES[core]
    config = make_config(preset="tiny", **chosen, **fields)
    case = LayerProgram(config=config, core=number)
    codes = random_map(rng, case.format, shape, special=0.02)
    numbers = widen(case.format, codes)
    if wide:
        y = case.parameter("y", shape, numbers)
    else:
        y = case.map("y", shape, codes)
    cells = case.parameter("cells", (1, size, size, shape[3]))
    case.layer(reorganize, y, cells)
    unit = VectorUnit()
    case.expect(cells, reorganize_map(unit, numbers, size), unit.flags)
    return case


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("core", CORES)
def test_map_sizes(core, size, rng, seed):
    for shape in SHAPES:
        case = reorganized(rng, core, shape, size)
        case.check_with_interpreter(f"{core}, S = {size}, {shape}", seed)


@pytest.mark.parametrize("core", CORES)
def test_a_float32_map(core, rng, seed):
    """That of a last layer."""
    for shape in SHAPES[:2]:
        reorganized(rng, core, shape, 4, wide=True).check_with_interpreter(f"{shape}", seed)


@pytest.mark.parametrize(
    ("core", "wide", "too_small"),
    [("4 rows", True, 32), ("5 rows", False, 32), ("6 rows beside 4", False, 32),
     ("3 rows beside 4", True, 32), ("fp8", False, 64)],
)  # fmt: skip
def test_small_memories(core, wide, too_small, rng, seed):
    """The map comes in groups of images, bands of rows and parts of the channels; the smallest
    memory that works has one of each at a time."""
    # Of a pitch of 8 numbers the last 2 are a word by themselves, of no channel.
    shape, loads = (2, 5, 4, 5 if core == "3 rows beside 4" else 9), {}
    for words in (256, 128, 96, 80, 64, 48, 32):
        fields = {"buffer_banks": words // 16, "buffer_bank_depth": 16}
        if CORES[core][1]:
            fields |= {"predictor_memory_banks": words // 16, "predictor_memory_bank_depth": 16}
        case = reorganized(rng, core, shape, 3, wide=wide, **fields)
        if words == too_small:
            message = rf"layer of y: a row of its map, one word per pixel, .* \({words} words\)"
            with pytest.raises(CompileError, match=message):
                _ = case.commands
            break
        loads[words] = sum(command.opcode is Opcode.LOAD for command in case.commands)
        if loads[words] not in list(loads.values())[:-1]:
            case.check_with_interpreter(f"{core}, {words} words", seed)
    assert loads[min(loads)] >= 6, loads


@pytest.mark.parametrize("core", CORES)
def test_tall_maps(core, rng, seed):
    """The sums over columns of all rows do not fit: windows get the rows of one band after the
    other, some of them twice. The memory has no room between what is kept."""
    fields = {"buffer_banks": 6, "buffer_bank_depth": 16}
    if CORES[core][1]:
        fields |= {"predictor_memory_banks": 6, "predictor_memory_bank_depth": 16}
    for shape in ((2, 22, 3, 5), (1, 17, 2, 9)):
        case = reorganized(rng, core, shape, 3, **fields)
        case.check_with_interpreter(f"{core}, {shape}", seed)


@pytest.mark.parametrize("pooled", range(1, 6))
def test_windows_are_golden_s(pooled):
    for size in range(1, 20):
        assert pool_windows(size, pooled) == list(arithmetic.pool_windows(size, pooled))


def test_the_comparison_can_fail(rng, seed):
    case = reorganized(rng, "4 rows", (2, 5, 6, 3), 4)
    case.expected["cells"] = case.expected["cells"].copy()
    case.expected["cells"][0, 3, 1, 2] ^= 1
    with pytest.raises(AssertionError, match=r"cells\(0, 3, 1, 2\) is 0x"):
        case.check_with_interpreter("one bit", seed)
