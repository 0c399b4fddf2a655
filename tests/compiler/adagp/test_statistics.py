"""Running statistics of predicted layers against golden, bit for bit.

Covers: compiler/adagp/standardize.py, compiler/kernels/tiling/state.py.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from compiler.adagp.standardize import standardize
from compiler.adagp.statistics import finish_statistics, gradient_statistics, gradient_sums
from compiler.adagp.tensors import GRADIENT_STATISTICS, INPUT_STATISTICS
from compiler.errors import CompileError
from compiler.tensors.parameters import lanes
from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32_unit import VectorUnit
from golden.arithmetic.formats import FLOAT32
from golden.prediction import arithmetic as golden
from hw.config import make_config
from hw.isa.encoding import Opcode
from verif.programs.layer_programs import LayerProgram

#: Configurations, and the core that works.
CORES = {
    "4x4": ({"variant": "low"}, 0),
    "5x3": ({"variant": "low", "rows": 5, "columns": 3}, 0),
    # Rows of a gradient have words without any channel.
    "3x2 beside 4x4": ({"variant": "max", "predictor_rows": 3, "predictor_columns": 2}, 1),
    "6x5 beside 4x4": ({"variant": "max", "predictor_rows": 6, "predictor_columns": 5}, 1),
    "fp8": ({"variant": "low", "rows": 6, "columns": 4, "operand_format": "fp8_e5m2"}, 0),
}
RUNNING = 0.75


def new_case(core, *, memory=None, loops=False):
    """``memory``: banks of the one that the core works with, and words in each."""
    chosen, number = CORES[core]
    fields = {}
    for name in ("buffer", "predictor_memory")[: number + 1] if memory else ():
        fields |= {f"{name}_banks": memory[0], f"{name}_bank_depth": memory[1]}
    config = make_config(preset="tiny", **chosen, **fields)
    return LayerProgram(config=config, core=number, loops=loops)


def numbers_of(case, name, values):
    """A tensor of statistics, each in all lanes."""
    codes = encode(FLOAT32, np.array(values, np.float64))
    shape = (1, 1, len(values), lanes(case.config))
    return codes, case.parameter(name, shape, np.broadcast_to(codes[:, np.newaxis], shape))


def everywhere(codes, tensor):
    return np.broadcast_to(np.asarray(codes)[:, np.newaxis], tensor.shape)


def rule_of(case):
    rows = case.config.cores[case.core].rows
    return golden.StatisticsRule(case.format, rows=rows, running=RUNNING, guard=True)


def ones_of(case):
    rows = case.config.cores[case.core].rows
    ones = encode(case.format, np.ones((1, 1, 1, rows)))
    return case.parameter("ones", ones.shape, ones, operands=True)


def observed_map(rng, case, size, outputs, *, bad=None):
    """Two maps are taken in, a third one is only standardised."""
    unit, ones = VectorUnit(), ones_of(case)
    codes, statistics = numbers_of(case, "statistics", [0.0] * len(INPUT_STATISTICS))
    for number, factor in enumerate((RUNNING, RUNNING, None)):
        cells = encode(FLOAT32, rng.normal(size=(size * size, outputs)) * 3 + 1)
        if number == bad:
            cells[-1, -1] = FLOAT32.infinity
        stored = case.parameter(f"cells {number}", (1, size, size, outputs), cells)
        shape = (1, size * size + 1, 1, outputs)
        # The row of the bias is there from the start.
        inputs = case.parameter(
            f"inputs {number}", shape, encode(case.format, np.ones(shape)), operands=True
        )
        layer = SimpleNamespace(
            name="layer", cells=stored, inputs=inputs, outputs=outputs, input_statistics=statistics
        )
        case.layer(standardize, layer, ones, factor=factor)
        if factor is not None:
            codes, rejected = rule_of(case).observe_input(unit, codes, cells)
            case.rejected += rejected
        case.expect(inputs, golden.standardize(unit, case.format, cells, codes))
    case.expect(statistics, everywhere(codes, statistics), unit.flags)
    return case


def observed_gradient(rng, case, rows, outputs, *, bad=None, observed=None, apart=False):
    """Two gradients beside predictions that are partly wrong, then right; or one that is given.
    With ``apart`` their sums are a step of their own."""
    unit, ones = VectorUnit(), ones_of(case)
    codes, statistics = numbers_of(case, "statistics", [0.0] * len(GRADIENT_STATISTICS))
    shape = (1, rows, 1, outputs)
    for number in range(1 if observed else 2):
        values = rng.normal(size=(rows, outputs)) * 0.01
        gradient = encode(FLOAT32, values)
        output = encode(FLOAT32, values * (-100, 60)[number] + rng.normal(size=values.shape))
        gradient, output = observed or (gradient, output)
        if number == bad:
            gradient[-1, -1] = FLOAT32.nan
        layer = SimpleNamespace(
            name="layer", rows=rows, outputs=outputs, gradient_statistics=statistics,
            prediction=case.parameter(f"prediction {number}", shape, output),
            error=case.parameter(f"error {number}", shape, operands=True),
            gradient_sums=case.parameter(f"sums {number}", (1, 1, 3, outputs), operands=True),
        )  # fmt: skip
        stored = case.parameter(f"gradient {number}", shape, gradient)
        if apart:
            case.layer(gradient_sums, layer, stored)
            case.layer(finish_statistics, layer, ones, factor=RUNNING)
        else:
            case.layer(gradient_statistics, layer, stored, ones, factor=RUNNING)
        codes, rejected = rule_of(case).observe_gradient(unit, codes, gradient, output)
        case.rejected += rejected
    case.expect(statistics, everywhere(codes, statistics), unit.flags)
    return case, dict(zip(GRADIENT_STATISTICS, decode(FLOAT32, codes), strict=True))


@pytest.mark.parametrize("core", CORES)
def test_standardize(core, rng, seed):
    for size, outputs in ((4, 6), (1, 1), (3, 13)):
        case = observed_map(rng, new_case(core), size, outputs)
        case.check_with_interpreter(f"S = {size}, {outputs} channels", seed)


@pytest.mark.parametrize("apart", [False, True], ids=["", "apart"])
@pytest.mark.parametrize("core", CORES)
def test_gradient_statistics(core, apart, rng, seed):
    """One block of rows, and several with a ragged last one; in one step, and in two."""
    for rows, outputs in ((1, 1), (32, 5), (33, 13), (70, 6)):
        case, _ = observed_gradient(rng, new_case(core), rows, outputs, apart=apart)
        case.check_with_interpreter(f"{rows} rows, {outputs} channels", seed)


@pytest.mark.parametrize("core", ["4x4", "6x5 beside 4x4"])
def test_order_of_sums(core, rng, seed):
    """What is left of products that cancel is what the order of additions leaves."""
    case = new_case(core)
    gradient = rng.normal(size=(70, 6)).astype(np.float32)
    products = rng.normal(size=gradient.shape)
    products[-1] = -products[:-1].sum(axis=0)
    observed = encode(FLOAT32, gradient), encode(FLOAT32, products / gradient)
    case, found = observed_gradient(rng, case, 70, 6, observed=observed)
    assert abs(found["product"]) < 1e-6
    case.check_with_interpreter(core, seed)


@pytest.mark.parametrize("bad", [0, 1])
def test_what_is_not_finite_is_rejected(bad, rng, seed):
    """In the first batch nothing is known; later the statistics of before stay."""
    case = observed_map(rng, new_case("4x4"), 3, 6, bad=bad)
    assert case.rejected == 1
    case.check_with_interpreter("input", seed)
    case, found = observed_gradient(rng, new_case("3x2 beside 4x4"), 33, 6, bad=bad)
    assert case.rejected == 1
    assert np.isfinite(list(found.values())).all()
    assert found["weight"] == pytest.approx(1 - RUNNING)
    case.check_with_interpreter("gradient", seed)


def test_gates(rng, seed):
    """A prediction that is right opens the gate as far as it is certain; a wrong one shuts it."""
    _, found = observed_gradient(rng, new_case("4x4"), 33, 13, bad=1)
    assert found["gate"] == 0
    _, found = observed_gradient(rng, new_case("4x4"), 33, 13, bad=0)
    assert 0 < found["gate"] < 1
    assert found["factor"] == pytest.approx(found["gate"] * found["scale"])


@pytest.mark.parametrize("core", ["4x4", "5x3", "3x2 beside 4x4"])
def test_cells_in_parts(core, rng, seed):
    """Parts of the channels, some of which are the pitch alone."""
    lengths = {}
    for words in (2048, 128, 96, 48):
        memory = (words // 16, 16) if words < 2048 else None
        case = observed_map(rng, new_case(core, memory=memory), 3, 25)
        if words == 48:
            message = r"layer layer: its cells, one word per pixel, and .* \(48 words\)"
            with pytest.raises(CompileError, match=message):
                _ = case.commands
            break
        lengths[words] = len(case.commands)
        case.check_with_interpreter(f"{words} words", seed)
    assert lengths[96] > lengths[128] > lengths[2048]


@pytest.mark.parametrize("core", ["4x4", "5x3", "3x2 beside 4x4"])
def test_small_memories(core, rng, seed):
    """Parts of the channels, some of which are the pitch alone, and blocks of rows."""
    lengths = {}
    for depth in (2048, 256, 192, 128):
        memory = (depth // 64, 64) if depth < 1024 else None
        case, _ = observed_gradient(rng, new_case(core, memory=memory), 70, 6)
        if depth == 128:
            message = (
                r"layer layer: 32 rows of its gradient, one word per row, and the sums .* "
                r"\(128 words\)"
            )
            with pytest.raises(CompileError, match=message):
                _ = case.commands
            break
        lengths[depth] = len(case.commands)
        if lengths[depth] not in list(lengths.values())[:-1]:
            case.check_with_interpreter(f"{depth} words", seed)
    assert lengths[min(lengths)] > lengths[2048]


@pytest.mark.parametrize("outputs", [25, 40])
def test_what_stays_leaves_the_rest_in_one_piece(outputs, rng, seed):
    """Sums in the middle of the memory would leave no room for rows of several channels."""
    case = new_case("4x4", memory=(8, 64))
    case, _ = observed_gradient(rng, case, 130, outputs)
    case.check_with_interpreter(f"{outputs} channels", seed)


@pytest.mark.parametrize(("core", "rows"), [("4x4", 560), ("3x2 beside 4x4", 450)])
def test_more_blocks_of_rows_than_fit(core, rows, rng, seed):
    """Their sums are added up as they come, eight at a time and a rest."""
    case, _ = observed_gradient(rng, new_case(core, memory=(13, 16)), rows, 6)
    case.check_with_interpreter(f"{rows} rows", seed)


@pytest.mark.parametrize("core", ["4x4", "3x2 beside 4x4"])
def test_many_blocks_of_rows(core, rng, seed):
    """Sums of all blocks would have room, but leave little for the rows: they are added up as they
    come, by commands that are the same every eight blocks."""
    lengths = {}
    for loops in (False, True):
        case = new_case(core, memory=(8, 64), loops=loops)
        case, _ = observed_gradient(rng, case, 32 * 64, 5)
        case.check_with_interpreter(f"loops {loops}", seed)
        lengths[loops] = len(case.commands)
        repeats = sum(command.opcode is Opcode.REPEAT for command in case.commands)
        assert bool(repeats) == loops
    assert lengths[True] < 0.7 * lengths[False]
