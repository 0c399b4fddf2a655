"""Layers between products, from DRAM to DRAM, against golden, bit for bit.

Covers: compiler/kernels/normalization/batch_norm.py,
compiler/kernels/normalization/batch_norm_backward.py,
compiler/kernels/normalization/batch_norm_bands.py,
compiler/kernels/normalization/batch_norm_pass.py, compiler/kernels/convolution/conv_geometry.py,
compiler/kernels/convolution/depthwise.py, compiler/kernels/convolution/depthwise_bands.py,
compiler/kernels/maps/elementwise.py, compiler/kernels/tiling/image_tiling.py,
compiler/kernels/tiling/in_place.py, compiler/kernels/updates/loss.py,
compiler/kernels/tiling/partial_sums.py, compiler/kernels/tiling/pixel_bands.py,
compiler/kernels/maps/pooling.py, compiler/kernels/tiling/row_tiling.py,
compiler/kernels/updates/rules.py, compiler/kernels/updates/scalars.py,
compiler/kernels/updates/update.py,
compiler/kernels/tiling/splitting.py, compiler/kernels/tiling/windows.py,
compiler/codegen/vector_commands.py, compiler/codegen/view.py, emulator/loss.py, emulator/vector.py,
golden/commands/vector.py, verif/programs/layer_cases.py.
"""

import numpy as np
import pytest

from compiler.errors import CompileError
from compiler.kernels.convolution import depthwise as compiled
from compiler.kernels.convolution.conv_geometry import Convolution
from compiler.kernels.convolution.part_statistics import PartStatistics, statistics_shape
from compiler.kernels.maps import elementwise, pooling
from compiler.kernels.normalization import batch_norm as forward
from compiler.kernels.normalization import batch_norm_pass
from compiler.kernels.normalization.batch_norm import batch_norm
from compiler.kernels.tiling import image_tiling
from golden.commands import vector as golden
from hw.config import make_config
from hw.isa import vector as vector_command
from verif.programs.layer_cases import CASES
from verif.programs.layer_programs import LayerProgram
from verif.system import accelerator
from verif.system.record import BASE

ARRAYS = {
    "tiny": {},
    "5x3": {"rows": 5, "columns": 3},
    "8x4: two groups": {"rows": 8, "columns": 4},
    "fp8": {"rows": 6, "columns": 4, "operand_format": "fp8_e5m2"},
    "fp16": {"rows": 3, "columns": 6, "operand_format": "fp16"},
    # Parameters have more words than maps with as many channels.
    "two cores": {"variant": "max", "rows": 4, "predictor_rows": 6},
}
#: Of which small buffers are tried, too; half of them with --long only.
SMALL = (
    "5x3",
    "two cores",
    pytest.param("tiny", marks=pytest.mark.long),
    pytest.param("fp8", marks=pytest.mark.long),
)
#: Shapes (N, H, W, C): ragged channels, several words per pixel, one image, one pixel.
SHAPES = ((2, 6, 5, 4), (1, 7, 8, 7), (3, 5, 3, 2))


def config_of(array, **options):
    return make_config(**{"variant": "baseline", "preset": "tiny"} | ARRAYS[array] | options)


#: Longer than others: roots and divisions. They run on the accelerator below, with fewer weights.
LONG = ("descent by Nesterov", "guarded descent by Adam", "descent by AdamW")
MOST = [pytest.param(n, marks=pytest.mark.long) if n in LONG else n for n in CASES]


def test_parameters_as_small_as_what_adam_keeps(rng, seed):
    """Two channels: a bias is as long as the two corrections of Adam."""
    case = CASES["descent by AdamW"](rng, config_of("tiny"), (1, 1, 1, 2))
    case.check_with_interpreter("AdamW", seed)


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("name", MOST)
def test_interpreter(name, array, rng, seed):
    config = config_of(array)
    for shape in SHAPES:
        CASES[name](rng, config, shape).check_with_interpreter(f"{name}, {shape}", seed)


@pytest.mark.parametrize("array", [pytest.param("5x3", marks=pytest.mark.long), *SMALL[1:]])
@pytest.mark.parametrize("name", MOST)
def test_maps_larger_than_the_buffer(name, array, rng, seed):
    config = config_of(array, buffer_bank_depth=64)
    for shape in ((3, 7, 6, 7), (2, 5, 7, 13)):
        CASES[name](rng, config, shape).check_with_interpreter(f"{name}, {shape}", seed)


@pytest.mark.parametrize("array", SMALL)
@pytest.mark.parametrize(
    ("name", "depth", "shape"),
    [
        ("normalization", 64, (6, 5, 6, 3)),
        ("normalization with ReLU", 64, (6, 5, 6, 7)),
        ("normalization, known statistics", 64, (6, 5, 6, 7)),
        ("depthwise", 128, (6, 9, 10, 3)),
    ],
)
def test_images_one_after_the_other(name, depth, shape, array, rng, seed):
    """A word of all images does not fit: every pass loads them again."""
    config = config_of(array, buffer_bank_depth=depth)
    CASES[name](rng, config, shape).check_with_interpreter(f"{name}, {shape}", seed)


@pytest.mark.parametrize("shape", [(75, 2, 2, 3), (3, 18, 17, 7), (20, 16, 17, 3)])
def test_statistics_in_pieces(shape, rng, seed, monkeypatch):
    """Of many images, or of images of several parts, those of all do not fit at once."""
    calls = []

    def jobs(*arguments):
        calls.append(sums(*arguments))
        return calls[-1]

    sums = forward._Forward._sum_jobs
    monkeypatch.setattr(forward._Forward, "_sum_jobs", jobs)
    case = CASES["normalization"](rng, config_of("tiny", buffer_bank_depth=32), shape)
    case.check_with_interpreter(f"{shape}", seed)
    assert calls and (shape[1] != 2 or all(len(found) > 2 for found in calls))


@pytest.mark.parametrize("shape", [(256, 1, 1, 7), (400, 1, 2, 5)])
def test_statistics_of_small_images_in_hwnc(shape, rng, seed, monkeypatch):
    """Where a map is read for its statistics, pixels of all images are loaded side by side."""
    looked = []

    def add(statistics, view, results, piece):
        looked.append(piece[1] - piece[0])
        whole(statistics, view, results, piece)

    whole = PartStatistics._add_hwnc
    monkeypatch.setattr(PartStatistics, "_add_hwnc", add)
    case = CASES["normalization"](rng, config_of("tiny", buffer_bank_depth=1024), shape)
    case.check_with_interpreter(f"{shape}", seed)
    assert sum(looked) == shape[0] and len(looked) < shape[0] // 4


@pytest.mark.parametrize(
    ("name", "array", "depth", "shape", "bands"),
    [
        ("normalization", "5x3", 32, (3, 13, 11, 3), 2),
        ("normalization with ReLU", "two cores", 64, (2, 15, 11, 7), 1),
        ("normalization", "5x3", 64, (1, 25, 21, 3), 1),
        ("normalization", "5x3", 512, (1, 67, 64, 3), 1),
        ("normalization, known statistics", "5x3", 64, (1, 25, 21, 3), 1),
        ("normalization, known statistics", "5x3", 64, (3, 13, 21, 3), 1),
        # Of five kernels, the ones with the largest results; the last part of the channels is
        # larger than the first.
        ("depthwise", "two cores", 128, (1, 17, 19, 7), 2),
        pytest.param("depthwise", "5x3", 128, (2, 15, 19, 3), 2, marks=pytest.mark.long),
    ],
)
def test_images_in_bands(name, array, depth, shape, bands, rng, seed, monkeypatch):
    """Not even a word of all pixels of an image fits, or of a part of it in the first case: sums go
    on from band to band."""
    cuts = []

    def image_parts(*arguments, **options):
        cuts.append(image_tiling.image_parts(*arguments, **options))
        return cuts[-1]

    def parts(statistics):
        cuts.append(whole(statistics))
        return cuts[-1]

    for module in (batch_norm_pass, compiled):
        monkeypatch.setattr(module, "image_parts", image_parts)
    whole = PartStatistics._parts
    monkeypatch.setattr(PartStatistics, "_parts", parts)
    case = CASES[name](rng, config_of(array, buffer_bank_depth=depth), shape)
    case.check_with_interpreter(f"{name}, {shape}", seed)
    assert cuts.count(None) == bands


@pytest.mark.parametrize(
    "name",
    [
        "guarded descent",
        pytest.param("descent", marks=pytest.mark.long),
        pytest.param("descent by AdamW", marks=pytest.mark.long),
    ],
)
def test_rows_larger_than_the_buffer(name, rng, seed):
    """Of a parameter: updates are cut in channels, too."""
    config = config_of("tiny", buffer_bank_depth=16)
    CASES[name](rng, config, (2, 1, 1, 12)).check_with_interpreter(name, seed)


def test_codes_are_those_of_the_hardware():
    """Golden has enumerations of its own: it stands alone."""
    for name in ("Carry", "Condition", "Factor", "Operation", "Source", "Term", "Watch"):
        codes = [
            {kind.name: int(kind) for kind in getattr(module, name)}
            for module in (golden, vector_command)
        ]
        assert codes[0] == codes[1], name


def test_accelerator(rng, seed):
    """All layers one after the other without a reset, on a memory that stalls."""
    config = config_of("5x3")
    shapes = {name: (2, 2, 3, 3) if name in LONG else (2, 4, 5, 7) for name in CASES}
    cases = {name: make(rng, config, shapes[name]) for name, make in CASES.items()}
    cases["an image in bands"] = CASES["normalization"](rng, config, (1, 67, 64, 3))
    runs = [
        accelerator.Run(image=case.image, program_size=len(case.program), registers=case.registers)
        for case in cases.values()
    ]
    simulator = accelerator.build(config, memory_bytes=BASE + max(len(r.image) for r in runs))
    outcomes, _ = accelerator.run(
        simulator, runs, seed=seed, stall_share=0.2, latency=10, timeout_cycles=400_000
    )
    for (name, case), outcome in zip(cases.items(), outcomes, strict=True):
        record = outcome.record
        assert record.done and not record.error, f"{name}: {record.code} of {record.unit}"
        case.check(outcome.memory, name)
        assert record.counters["CORE0_VECTOR_REJECTED"] == case.rejected, name


def test_the_comparison_can_fail(rng, seed):
    case = CASES["elements"](rng, config_of("tiny"), (1, 2, 2, 3))
    case.expected["total"] = case.expected["total"] ^ np.uint8(1)
    with pytest.raises(AssertionError, match=r"total\(0, 0, 0, 0\) is 0x"):
        case.check_with_interpreter("elements", seed)


def test_what_does_not_fit():
    config = config_of("tiny", buffer_bank_depth=16)

    def write(layer, *shapes, **options):
        case = LayerProgram(config=config)
        tensors = [case.map(f"map {n}", shape) for n, shape in enumerate(shapes)]
        layer(case, *tensors, **options)
        with pytest.raises(CompileError) as error:
            _ = case.commands
        return str(error.value)

    def simple(function):
        return lambda case, *tensors, **options: case.layer(function, *tensors, **options)

    def normalization(case, x, y):
        statistics = case.parameter("statistics", statistics_shape(x.shape))
        vectors = [case.parameter(f"vector {n}", x.shape[3]) for n in range(7)]
        case.layer(batch_norm, x, y, statistics, *vectors, epsilon=1e-5, momentum=0.1)

    def weight_gradient(case, x, y):
        weights = case.parameter("weights", (1, 1, 1, x.shape[3]), operands=True)
        dw = case.parameter("dw", (1, 1, 1, x.shape[3]))
        layer = Convolution(name="layer", x=x, y=y, weights=weights, bias=None)
        case.layer(compiled.depthwise_weight_gradient, layer, y, dw)

    long = (1, 1, 1, 100)
    assert "map 2: a pixel of its maps takes 75 words" in write(
        simple(elementwise.add), *[long] * 3
    )
    line = (1, 4, 40, 3)
    geometry = {"kernel": (1, 1), "stride": (1, 1)}
    message = write(simple(pooling.max_pool), *[line] * 3, **geometry)
    assert "map 1: a row of its map with one word per pixel" in message
    assert "layer layer: what a row of outputs" in write(weight_gradient, line, line)
    assert "more than one pixel" in write(normalization, (1, 1, 1, 3), (1, 1, 1, 3))
    config = config_of("tiny", buffer_banks=1, buffer_bank_depth=16)
    message = write(normalization, line, line)
    assert "map 0 (batch normalisation): a pixel of one word takes 1 words" in message
    with pytest.raises(ValueError, match="at least two maps"):
        elementwise.sum_gradients(None, ["x"], LayerProgram(config=config).map("x", line))
