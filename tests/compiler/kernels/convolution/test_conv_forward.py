"""The forward product; tests/verif/programs/test_convolution_programs.py checks its numbers."""

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.dependencies import Recorder
from compiler.codegen.scratchpad import NoRoom
from compiler.kernels.convolution.conv_forward import _Forward, forward
from compiler.kernels.convolution.part_statistics import PartStatistics
from hw.config import make_config
from hw.isa.encoding import Opcode
from verif.programs.convolution_programs import ConvolutionProgram


def test_results_outlive_what_is_beside_the_product():
    """One block holds the results of all column tiles, while others take all the room there is."""
    config = make_config(variant="baseline", preset="tiny")
    layer = ConvolutionProgram(config=config, shape=(2, 4, 4, 56), outputs=16, kernel=(1, 1)).layer
    recorder = Recorder(config)
    program = CoreProgram(config, config.cores[0], recorder)
    taken = []

    def beside(program, tensors):
        assert tensors == "tensors"
        while True:
            try:
                taken.append(program.scratch.take(1))
            except NoRoom:
                break
        program.scratch.drop(taken)
        for block in taken:
            program.scratch.release(block)

    forward(program, layer, beside=beside, tensors="tensors")
    commands = recorder.link()
    posts = [c.fields["out_address"] for c in commands if c.opcode is Opcode.POST]
    assert len(posts) == 4, "as many column tiles"
    assert posts == list(range(posts[0], posts[0] + 4)), "words of the first pixel of one block"
    results = range(posts[0], posts[0] + 2 * 4 * 4 * 4)
    wrong = [block.address for block in taken if block.address in results]
    assert taken and not wrong, f"word {wrong[0]:#x} is given to somebody else"


def test_the_input_of_many_channels_stays():
    """A cut whose input has room in the buffer, but none to spare, would load it again for every
    column tile."""
    config = make_config(variant="baseline", preset="paper")
    program = ConvolutionProgram(
        config=config, shape=(4, 8, 8, 1024), outputs=256, kernel=(1, 1), parts=("y",)
    )
    x, loaded = program.tensors["x"], 0
    for command in program.commands:
        fields = command.fields
        if command.opcode is Opcode.LOAD and 0 <= fields["dram_address"] - x.offset < x.size:
            loaded += fields["run_bytes"] * fields["run_count"]
    assert x.size <= loaded <= 1.5 * x.size, f"{loaded} bytes loaded of {x.size}"


def test_tiles_that_are_looked_at_leave_room_for_the_next():
    """One is in use while the next one comes; in the middle of the buffer it would leave room for
    that in two pieces, if it had more than a third."""
    config = make_config(variant="baseline", preset="paper")
    for outputs, looks in ((480, True), (960, False)):
        source = ConvolutionProgram(
            config=config, shape=(16, 8, 8, 160), outputs=outputs, kernel=(1, 1),
            parts=("y", "statistics"),
        )  # fmt: skip
        program = CoreProgram(config, config.cores[0], Recorder(config))
        statistics = PartStatistics(program, source.layer.y, source.tensors["statistics"])
        product = _Forward(program, source.layer, False, None, statistics)
        tiles = product.cut()
        assert tiles and product.looks is looks, f"{outputs} channels"
        largest = max(product._out_size(*tile) for tile in tiles)
        assert not looks or 3 * largest <= program.scratch.words
