"""Whether a product is computed in tiles or in blocks; tests/verif/programs has their numbers."""

from dataclasses import replace

import pytest

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.dependencies import Recorder
from compiler.codegen.lanes import Lane
from compiler.errors import CompileError
from compiler.kernels.convolution import conv_forward, conv_input_gradient, conv_weight_gradient
from compiler.kernels.convolution.blocked_cut import Cut
from compiler.kernels.convolution.part_statistics import PartStatistics
from compiler.kernels.convolution.product_cost import blocked_jobs, tiled_cycles
from hw.isa.encoding import Opcode
from tests.verif.programs.test_convolution_programs import check, small_program


def test_what_tiles_wait_for():
    """Loads hide where there is room for what comes next, if they are short."""
    tiles = [((0, 2), (0, 4)), ((2, 4), (0, 4)), ((4, 6), (0, 4))]

    def cycles(weights, room, source=10, least=1):
        return tiled_cycles(
            tiles, array=lambda part, least: 100 * max(8, least), least=least,
            size=lambda part: 50, source=lambda part: source, weights=weights, room=room,
        )  # fmt: skip

    assert cycles([(100, 300)], 1000) == (2400, 2400)  # weights stay
    assert cycles([(100, 300)] * 20, 1000) == (2400, 3 * 2 * 6010)  # loads take longer
    assert cycles([(100, 30)] * 10, 1000) == (2400, 2400)
    assert cycles([(400, 30)] * 10, 1000) == (2400, 3 * (800 + 310))  # no room for two
    assert cycles([(100, 300)], 1000, source=500) == (2400, 3000)
    assert cycles([(100, 300)], 1000, least=20) == (2400, 6000)


@pytest.mark.parametrize("loops", [False, True], ids=["written out", "loops"])
@pytest.mark.parametrize(("part", "inputs", "outputs"), [("y", 24, 8), ("dx", 8, 40)])
def test_slow_tiles_become_blocks(part, inputs, outputs, loops, rng, seed):
    """Weights have room once, so the array would wait for the next ones in tiles."""
    shape = (96 if loops else 8, 2, 2, inputs)
    layer = shape, outputs, (3, 3), (1, 1), (1, 1), (1, 1), 1
    program = replace(small_program({"buffer_bank_depth": 128}, layer, (part,)), loops=loops)
    writer = CoreProgram(program.config, program.core, Recorder(program.config))
    if part == "y":
        plain = conv_forward._Forward(writer, program.layer, False, None)
        blocked = conv_forward._Blocked(writer, program.layer, False)
    else:
        maps = program.layer, program.tensors["dy"], program.tensors["dx"]
        plain = conv_input_gradient._InputGradient(writer, *maps, 1.0)
        blocked = conv_input_gradient._Blocked(writer, *maps, 1)
    tiles = plain.cut()
    vectors, cycles = plain.cycles(tiles)
    assert vectors == shape[0] * 4 * 9 * inputs * outputs // 16
    assert tiles and cycles > 1.5 * vectors > 1.2 * blocked.plan()[1]
    assert blocked_jobs(blocked, (vectors, cycles), 1)
    for more in ("more", "again"):
        assert blocked_jobs(blocked, (vectors, cycles), 1, **{more: cycles}) is None
    assert blocked_jobs(blocked, (vectors, vectors), 1) is None
    # As quick and far fewer.
    boxes, least = blocked_jobs(blocked, (vectors, cycles), 1), blocked.plan()[1]
    quick = (vectors, round(least))
    assert blocked_jobs(blocked, quick, max(512, 2 * len(boxes)))
    assert blocked_jobs(blocked, quick, 2 * len(boxes) - 1) is None
    assert blocked_jobs(blocked, (vectors, round(least) - 512 * 61), 512) is None
    repeats = [command for command in program.commands if command.opcode is Opcode.REPEAT]
    assert bool(repeats) == loops
    check(program, rng, seed, "blocks")


def test_what_would_be_read_again():
    """Statistics of a map that tiles cannot take: boxes come in their place as soon as these take
    less than reading it again."""
    layer = (8, 4, 4, 24), 8, (3, 3), (1, 1), (1, 1), (1, 1), 1
    program = small_program({"buffer_bank_depth": 256}, layer, ("y", "statistics"))
    writer = CoreProgram(program.config, program.core, Recorder(program.config))
    parts = PartStatistics(writer, program.tensors["y"], program.tensors["statistics"])
    blocked = conv_forward._Blocked(writer, program.layer, False, parts)
    cut, least = blocked.plan(10**9)
    assert blocked.can_look(cut)
    assert not conv_forward._Blocked(writer, program.layer, False).can_look(cut)
    cycles = round(least)

    def boxes(tiled, **options):
        return blocked_jobs(blocked, (cycles, tiled), 1, again=10**9, **options) is not None

    assert boxes(cycles + 1, looks=False) and not boxes(cycles + 1, looks=True)
    assert not boxes(cycles - 1, looks=False)


@pytest.mark.parametrize("kernel", [1, 3])
def test_jobs_are_counted_before_they_are_made(kernel):
    """Of phases that have fewer taps, or none, in boxes that have outputs of some of them alone."""
    layer = (2, 7, 7, 8), 24, (kernel, kernel), (2, 2), (kernel // 2, kernel // 2), (1, 1)
    program = small_program({}, layer, ("dx",))
    writer = CoreProgram(program.config, program.core, Recorder(program.config))
    maps = program.layer, program.tensors["dy"], program.tensors["dx"]
    blocked = conv_input_gradient._Blocked(writer, *maps, 1)
    for rows, columns, taps in ((7, 7, 3), (2, 7, 1), (1, 7, 3), (1, 1, 1)):
        cut = Cut(1, rows, columns, 1, 1, taps, taps)
        assert blocked.count(cut) == len(blocked.jobs(cut))


@pytest.mark.parametrize(
    ("part", "inputs", "outputs"), [("y", 24, 8), ("dx", 8, 40), ("dw", 40, 8)]
)
def test_too_many_jobs_are_refused_before_they_are_made(part, inputs, outputs, monkeypatch):
    """No more are announced than come."""
    layer = (96, 2, 2, inputs), outputs, (3, 3), (1, 1), (1, 1), (1, 1), 1
    program = small_program({"buffer_bank_depth": 128}, layer, (part,))
    config, (x, dy) = program.config, (program.layer, program.tensors.get("dy"))
    announced = []

    def listed(most):
        lane = Lane(config, program.core, Recorder(config), 0, (0, 512), most)
        expect = lane.expect
        monkeypatch.setattr(lane, "expect", lambda n: announced.append(n) or expect(n))
        with lane.listing():
            if part == "y":
                conv_forward.forward(lane, x)
            elif part == "dx":
                conv_input_gradient.input_gradient(lane, x, dy, program.tensors["dx"])
            else:
                conv_weight_gradient.weight_gradient(lane, x, dy, program.tensors["dw"])
        return sum(map(len, lane.lists))

    made, count = listed(10**6), max(announced)
    assert made / 4 <= count <= made
    assert listed(made) == made

    def make(*_, **__):
        raise AssertionError("a job has been made")

    for module in ("blocked_product", "conv_weight_gradient"):
        monkeypatch.setattr(f"compiler.kernels.convolution.{module}.Job", make)
    with pytest.raises(CompileError, match=f"^more than {count - 1} jobs beside others$"):
        listed(count - 1)
