"""Modules alone: what belongs to each, its name without the design, work shared among threads."""

import threading

import pytest

from synth.common import module_synthesis
from synth.common.errors import ToolError
from synth.common.module_synthesis import (
    canonical_name,
    lone_modules,
    map_each,
    real_name,
    split_modules,
)

#: A top with two blocks; one of them has a helper, which is flattened into it, and a memory.
VERILOG = r"""
module adagp_low(clk, q);
  input clk;
  output [7:0] q;
  \adagp_low.fetch fetch (.clk(clk));
  adagp_core0 core0 (.clk(clk), .q(q));
endmodule

module \adagp_low.fetch (clk);
  input clk;
endmodule

module adagp_core0(clk, q);
  input clk;
  output reg [7:0] q = 8'h81;
  adagp_ram_16x8_8 bank (.clk(clk));
  \adagp_core0.helper helper (.clk(clk));
endmodule

module \adagp_core0.helper (clk);
  input clk;
  \adagp_low.fetch again (.clk(clk));
endmodule

module adagp_ram_16x8_8(clk);
  input clk;
endmodule

module unused(clk);
  input clk;
endmodule
"""


def lone(**options):
    kept = ["adagp_low.fetch", "adagp_core0", "unused"]
    return lone_modules(split_modules(VERILOG), "adagp_low", kept, **options)


def test_what_belongs_to_a_module():
    found = lone(boxes={"adagp_ram_16x8_8"})
    assert set(found) == {"adagp_low", "adagp_low.fetch", "adagp_core0"}
    core = found["adagp_core0"]
    assert set(split_modules(core.text)) == {"adagp_core0", "adagp_core0.helper"}
    assert set(split_modules(core.stubs)) == {"adagp_ram_16x8_8", "adagp_top.fetch"}
    # Without the name of the top, so that it is the same for another design.
    assert "adagp_low" not in core.text + core.stubs
    assert found["adagp_low.fetch"].name == "adagp_top.fetch"
    assert found["adagp_low.fetch"].file == "adagp_top_fetch"
    assert found["adagp_low"].stubs.splitlines() == [
        "(* blackbox *)",
        "module adagp_core0(clk, q);",
        "  input clk ;",
        "  output [7:0] q ;",
        "endmodule",
        "(* blackbox *)",
        "module \\adagp_top.fetch (clk);",
        "  input clk ;",
        "endmodule",
    ]


def test_memories_are_flattened_unless_boxes():
    assert "adagp_ram_16x8_8" in split_modules(lone()["adagp_core0"].text)


def test_names():
    assert canonical_name("adagp_low.fetch", "adagp_low") == "adagp_top.fetch"
    for name in ("adagp_low.fetch", "adagp_core0.load", "adagp_low"):
        assert real_name(canonical_name(name, "adagp_low"), "adagp_low") == name


def test_no_top():
    with pytest.raises(ToolError, match="has no module adagp_max"):
        lone_modules(split_modules(VERILOG), "adagp_max", [])


def test_threads_share_the_work(monkeypatch, tmp_path):
    """While one thread maps the first module the other maps the rest; each is mapped once."""
    monkeypatch.setenv("ADAGP_SYNTH_CACHE", str(tmp_path))
    begun, others_done, mapped = threading.Event(), threading.Event(), []
    first = next(iter(lone()))

    def compute(module):
        mapped.append(module.name)
        if module.name == first:
            begun.set()
            assert others_done.wait(30)
        elif len(mapped) == 3:
            others_done.set()
        return {"name": module.name}

    results = {}

    def work(who):
        results[who] = map_each(lone(), step="module", key={}, compute=compute)

    threads = [threading.Thread(target=work, args=(who,)) for who in "ab"]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(mapped) == ["adagp_core0", "adagp_low", "adagp_top.fetch"]
    assert results["a"] == results["b"]
    assert results["a"]["adagp_low.fetch"]["name"] == "adagp_top.fetch"


def test_netlist_that_cannot_be_read(monkeypatch, tmp_path):
    monkeypatch.setattr(module_synthesis, "run_yosys", lambda *a, **k: None)
    with pytest.raises(ToolError, match="netlist of Yosys cannot be read"):
        module_synthesis.yosys_netlist(lone()["adagp_low"], [], directory=tmp_path)
