"""The block RAM: the text for synthesis and the form for Amaranth's simulator are one memory.

Covers: verif/blocks/memory/cocotb_ram.py.
"""

import json

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hw.primitives.ram import BlockRam, add_ram
from hw.primitives.shared_module import emit_verilog
from verif.blocks.memory.cocotb_ram import FORMS, SIZES_VARIABLE
from verif.sim import runner

#: (width, depth, granularity): one lane, bits, bytes, and lanes of an odd number of bits.
SIZES = [(8, 16, 8), (5, 17, 1), (24, 21, 8), (33, 64, 11)]
#: Like the others, but its text is spoiled.
WRONG = (12, 16, 4)
INPUTS = ("read_en", "read_address", "write_en", "write_address", "write_data")


class BothForms(wiring.Component):
    """Every size twice on the same inputs: emitted by ``add_ram``, and as an Amaranth memory."""

    def __init__(self):
        self.rams = [
            BlockRam(width=width, depth=depth, granularity=granularity)
            for width, depth, granularity in (*SIZES, WRONG)
        ]
        members = {}
        for index, ram in enumerate(self.rams):
            members |= {
                f"ram{index}_{name}": In(ram.signature.members[name].shape) for name in INPUTS
            }
            members |= {f"ram{index}_{form}": Out(ram.width) for form in FORMS}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        for index, ram in enumerate(self.rams):
            m.submodules[f"plain{index}"] = ram
            emitted = add_ram(
                m,
                platform,
                name=f"emitted{index}",
                width=ram.width,
                depth=ram.depth,
                granularity=ram.granularity,
            )
            for form, component in zip(FORMS, (emitted, ram)):
                for name in INPUTS:
                    m.d.comb += getattr(component, name).eq(getattr(self, f"ram{index}_{name}"))
                m.d.comb += getattr(self, f"ram{index}_{form}").eq(component.read_data)
        return m


@pytest.fixture(scope="module")
def design():
    text = emit_verilog(BothForms(), name="both_forms")
    before, name, wrong = text.partition("module adagp_ram_16x12_4(")
    line = "if (write_en[2]) mem[write_address][11:8] <= write_data[11:8];"
    assert line in wrong
    wrong = wrong.replace(line, line.replace("write_en[2]", "write_en[1]"))
    return runner.build(before + name + wrong, toplevel="both_forms")


def run(design, numbers, seed):
    sizes = [(number, *(*SIZES, WRONG)[number]) for number in numbers]
    return runner.run(
        design,
        "verif.blocks.memory.cocotb_ram",
        seed=seed,
        extra_env={SIZES_VARIABLE: json.dumps(sizes)},
    )


def test_both_forms_behave_alike(design, seed):
    assert run(design, range(len(SIZES)), seed).passed


def test_a_wrong_write_enable_is_found(design, seed):
    with pytest.raises(runner.SimulationFailed, match="verilog RAM of 16 words, 12 bits in 4"):
        run(design, [len(SIZES)], seed)


def test_emitted_without_initial_contents():
    ram = BlockRam(width=64, depth=4096, granularity=16)
    text = ram.verilog("memory")
    assert "initial" not in text and len(text) < 1500
    assert text.count("<= write_data") == 4
    assert ram.module_name == "adagp_ram_4096x64_16"


def test_one_module_per_size():
    class Several(wiring.Component):
        def __init__(self):
            super().__init__({"o": Out(8).array(3)})

        def elaborate(self, platform):
            m = Module()
            for index, depth in enumerate((16, 16, 32)):
                ram = add_ram(m, platform, name=f"ram{index}", width=8, depth=depth)
                m.d.comb += [ram.read_en.eq(1), self.o[index].eq(ram.read_data)]
            return m

    text = emit_verilog(Several(), name="several")
    assert text.count("module adagp_ram_16x8_8(") == text.count("module adagp_ram_32x8_8(") == 1


@pytest.mark.parametrize(("width", "granularity"), [(8, 3), (8, 16), (12, 8)])
def test_granularity_must_divide_the_width(width, granularity):
    message = f"Granularity must divide the width of {width} bits, not {granularity}"
    with pytest.raises(ValueError, match=message):
        BlockRam(width=width, depth=16, granularity=granularity)


def test_contents_survive_reset():
    """In Amaranth's simulator as well, where the output keeps its word, too."""
    ram, clear = BlockRam(width=8, depth=16), Signal()

    async def testbench(ctx):
        ctx.set(ram.write_address, 5)
        ctx.set(ram.write_data, 0xA7)
        ctx.set(ram.write_en, 1)
        await ctx.tick()
        ctx.set(ram.write_en, 0)
        ctx.set(clear, 1)
        await ctx.tick().repeat(3)
        ctx.set(clear, 0)
        ctx.set(ram.read_address, 5)
        ctx.set(ram.read_en, 1)
        await ctx.tick()
        assert ctx.get(ram.read_data) == 0xA7

    simulator = Simulator(ResetInserter(clear)(ram))
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
