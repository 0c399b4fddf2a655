"""The list of memories: what the Verilog holds, once per instance."""

import pytest

from hw.config import make_config
from hw.control.command_queue import CHUNK_WIDTH, command_chunks
from hw.control.fetch import KEPT
from hw.isa.encoding import queue_opcodes
from hw.primitives.ram import BlockRam
from rtl_gen.generate import accelerator_verilog
from synth.common.errors import ToolError
from synth.common.memories import list_memories, macro_bits, memories_of


@pytest.mark.long
def test_tiny_accelerator():
    """All macros of both cores, with the sizes of the configuration."""
    config = make_config(variant="max", preset="tiny", buffer_banks=2, accumulator_depth=64)
    text, _ports = accelerator_verilog(config)
    macros = [memory for memory in memories_of(config, text) if memory.macro]
    others = [m for m in macros if "command queues" not in m.purpose]
    found = {(m.purpose, m.core): (m.count, m.words, m.width, m.granularity) for m in others}
    assert found == {
        ("global buffer", 0): (2, 512, 64, 64),
        ("predictor memory", 1): (4, 512, 64, 64),
        ("accumulators, core 0", 0): (2, 64, 128, 128),
        ("accumulators, core 1", 1): (2, 128, 128, 128),
        ("registers of LOSS, core 0", 0): (1, 32, 32, 32),
        ("last commands", None): (1, 8 * KEPT, 64, 64),
    }
    queues = [m for m in macros if m not in others]
    assert {(m.purpose, m.core) for m in queues} == {
        (f"command queues, core {core}", core) for core in (0, 1)
    }
    depth = config.command_queue_depth
    assert sum(m.bits for m in queues) == depth * CHUNK_WIDTH * sum(
        command_chunks(opcode) for core in config.cores for opcode in queue_opcodes(core)
    )
    assert macros[0].bits == 2048 * 64
    assert macro_bits(macros)["global buffer"] == 2 * 512 * 64
    assert {m.instances for m in macros if m.core == 0 and "buffer" in m.purpose} == {
        ("core0.buffer.bank0", "core0.buffer.bank1")
    }
    arrays = {m.instances[0]: m for m in memories_of(config, text) if not m.macro}
    assert arrays["loops.counters"].bits == 4 * 32
    assert "registers.counters.words" in arrays


@pytest.mark.long
def test_predictor_memory_on_the_main_core():
    """Last banks of the one buffer; and another configuration's text is noticed."""
    config = make_config(variant="efficient", preset="tiny")
    text, _ports = accelerator_verilog(config)
    memories = memories_of(config, text)
    (memory,) = [m for m in memories if m.purpose == "predictor memory"]
    assert memory.instances == tuple(f"core0.buffer.bank{bank}" for bank in range(4, 8))
    assert memory.words == 512
    other = make_config(variant="efficient", preset="tiny", predictor_memory_banks=2)
    message = "predictor memory in the Verilog holds 131072 bits; .* asks for 65536"
    with pytest.raises(ToolError, match=message):
        memories_of(other, text)


NESTED = """\
module top(clk);
  \\top.a  a (
    .clk(clk)
  );
  \\top.a  b (
    .clk(clk)
  );
  keep keep (
  );
endmodule
module \\top.a (clk);
  reg [6:0] queue [4:0];
  reg [6:0] scalar;
  adagp_ram_8x12_4 ram (
  );
endmodule
"""


def test_instances_multiply():
    ram = BlockRam(width=12, depth=8, granularity=4)
    text = NESTED + ram.verilog(ram.module_name)
    macro, array = list_memories(text, top="top", purpose=lambda path: "same")
    assert (macro.count, macro.words, macro.width, macro.granularity) == (2, 8, 12, 4)
    assert macro.instances == ("a.ram", "b.ram") and macro.bits == 192
    assert [m.instances for m in list_memories(text, top="top") if not m.macro] == [
        ("a.queue",),
        ("b.queue",),
    ]  # without a common purpose
    assert array.instances == ("a.queue", "b.queue")
    assert (array.words, array.width, array.macro) == (5, 7, False)


def test_wrong_text():
    with pytest.raises(ToolError, match="has no module other"):
        list_memories(NESTED, top="other")
    ram = BlockRam(width=13, depth=8)
    with pytest.raises(ToolError, match="adagp_ram_8x12_4 holds 8 words of 13 bits"):
        list_memories(NESTED + ram.verilog("adagp_ram_8x12_4"), top="top")
