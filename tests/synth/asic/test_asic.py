"""The standard-cell flow on a design of two cores' worth of nothing, in the tiny library.

Covers: synth/asic/report.py, synth/asic/area.py, synth/asic/mapping.py, synth/asic/tables.py,
synth/common/command_line.py.
"""

import json
from datetime import date

import pytest

from hw.config import make_config
from synth.__main__ import main
from synth.asic import mapping
from synth.asic import report as asic
from synth.asic.area import areas, block_areas, block_of, merged_name
from synth.asic.mapping import map_to_cells
from synth.asic.netlist.flat_netlist import flatten
from synth.asic.netlist.static_timing import MemoryTiming
from synth.common import cache, module_synthesis
from synth.common.errors import ToolError
from synth.common.hierarchy import block_modules

#: Shaped as the accelerator's: a core with two equal lanes and a memory, and a register block.
VERILOG = r"""
module adagp_baseline(clk, rst, a, q);
  input clk, rst;
  input [7:0] a;
  output [7:0] q;
  wire [7:0] x;
  \adagp_baseline.registers registers (.clk(clk), .rst(rst), .a(a), .q(x));
  adagp_core0 core0 (.clk(clk), .rst(rst), .a(x), .q(q));
endmodule

module \adagp_baseline.registers (clk, rst, a, q);
  input clk, rst;
  input [7:0] a;
  output reg [7:0] q = 8'h81;
  always @(posedge clk) if (rst) q <= 8'h81; else q <= a ^ 8'h0f;
endmodule

module adagp_core0(clk, rst, a, q);
  input clk, rst;
  input [7:0] a;
  output [7:0] q;
  wire [7:0] x, y;
  \adagp_core0.post post (.clk(clk), .a(a), .q(x));
  adagp_ram_16x8_8 bank (.clk(clk), .rst(rst), .read_en(1'b1), .read_address(a[3:0]),
    .read_data(y), .write_en(1'b1), .write_address(a[7:4]), .write_data(x));
  assign q = y;
endmodule

module \adagp_core0.post (clk, a, q);
  input clk;
  input [7:0] a;
  output [7:0] q;
  adagp_post_lane_x lane0 (.clk(clk), .a(a[3:0]), .q(q[3:0]));
  adagp_post_lane_x lane1 (.clk(clk), .a(a[7:4]), .q(q[7:4]));
endmodule

module adagp_post_lane_x(clk, a, q);
  input clk;
  input [3:0] a;
  output [3:0] q;
  wire [3:0] s;
  \adagp_post_lane_x.adder adder (.a(a), .q(s));
  reg [3:0] q = 0;
  always @(posedge clk) q <= s;
endmodule

module \adagp_post_lane_x.adder (a, q);
  input [3:0] a;
  output [3:0] q;
  assign q = a + 4'd3;
endmodule

module adagp_ram_16x8_8(clk, rst, read_en, read_address, read_data, write_en, write_address,
    write_data);
  input clk, rst, read_en, write_en;
  input [3:0] read_address, write_address;
  input [7:0] write_data;
  output reg [7:0] read_data;
  reg [7:0] mem [15:0];
  always @(posedge clk) if (read_en) read_data <= mem[read_address];
  always @(posedge clk) if (write_en) mem[write_address] <= write_data;
endmodule
"""


@pytest.fixture(scope="module")
def implemented(tiny, tmp_path_factory):
    pytest.importorskip("pyosys")
    directory = tmp_path_factory.mktemp("asic")
    memory = {"adagp_ram_16x8_8": MemoryTiming(access_ns=0.3)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.ENVIRONMENT, str(directory / "cache"))
        netlist, graph, buffers = asic.implement(
            VERILOG,
            top="adagp_baseline",
            library=tiny,
            memory=lambda modules: {name: memory[name] for name in modules},
            directory=directory,
        )
    return netlist, graph, buffers, directory


def test_memory_is_no_logic(implemented):
    """Sixteen flip-flops, none of them for the 128 bits of the memory."""
    netlist, _graph, _buffers, _directory = implemented
    assert sum(len(group.block) for group in netlist.registers()) == 8 + 2 * 4
    assert [netlist.blocks[macro.block].name for macro in netlist.macros] == ["core0.bank"]
    assert set(netlist.macros[0].outputs) == {"read_data"}
    # Equal lanes are one netlist: the same cells in both.
    details = {row["path"]: row for row in block_areas(netlist)[1]}
    assert details["core0.post.lane*"]["instances"] == 2
    assert details["core0.post.lane*"]["cells"] % 2 == 0


def test_areas_add_up(implemented, tiny):
    netlist, _graph, _buffers, _directory = implemented
    by_kind = areas(netlist)
    assert by_kind["sequential"] == 16 * tiny.cells["DFF"].area
    cells = [(group.cell, len(group.block)) for group in netlist.groups.values()]
    assert by_kind["total"] == sum(cell.area * count for cell, count in cells)
    assert by_kind["combinational"] == by_kind["total"] - by_kind["sequential"]
    buffers = sum(cell.area * count for cell, count in cells if cell.is_buffer)
    assert by_kind["buffers_inverters"] == buffers <= by_kind["combinational"]
    blocks, details = block_areas(netlist)
    assert sum(blocks.values()) == by_kind["total"] == sum(row["total"] for row in details)
    assert set(blocks) == {"register file", "post-processing", "connections"}


def test_initial_values_survive(implemented):
    """Two registers of the eight begin as one."""
    assert implemented[0].initial.sum() == 2


def test_blocks():
    names = ["adagp_max", "adagp_max.fetch", "adagp_max.fetch.fifo", "adagp_core1"]
    names += ["adagp_core1.matrix", "adagp_core1.matrix.array", "adagp_core1.matrix.matmul.nest"]
    names += ["adagp_core1.post", "adagp_core1.post.writer", "adagp_ram_16x8_8"]
    names += ["adagp_column_bf16_12", "adagp_column_bf16_12.rounder", "adagp_pe_bf16_d5"]
    assert block_modules(names, "adagp_max", shared=mapping.SHARED) == [
        "adagp_max.fetch",
        "adagp_core1",
        "adagp_core1.matrix.array",
        "adagp_core1.post",
        "adagp_column_bf16_12",
        "adagp_pe_bf16_d5",
    ]
    assert block_of("core0.matrix.array.column3.pe11") == "array"
    assert block_of("core1.matrix.array") == "predictor array"
    assert block_of("core1.load_queue") == "predictor command queues"
    assert block_of("core1.vector.lane0") == "predictor vector engine"
    assert block_of("core0.loss") == "loss engine"
    assert block_of("batches$527") == block_of("batches.schedule") == "batch control"
    assert merged_name("batches$527.schedule") == "batches.schedule"
    assert block_of("core0") == block_of("") == block_of("anything") == "connections"
    assert merged_name("core0.matrix.array.column3.pe11") == "core0.matrix.array.column*.pe*"


def test_command(tiny_path, old_entries, tmp_path, monkeypatch, capsys):
    """From the command line, with JSON; the second time from the cache."""
    pytest.importorskip("pyosys")
    monkeypatch.setattr(asic, "emitted_verilog", lambda config: VERILOG)
    monkeypatch.setattr(
        asic, "sram_macro", lambda **sizes: {"access_time_ns": 0.25 if sizes["words"] == 16 else 9}
    )
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "cache"))
    out = tmp_path / "figures.json"
    command = ["asic", "--variant", "baseline", "--preset", "tiny", "--liberty", str(tiny_path)]
    command.append("--no-power")
    assert main([*command, "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert "post-processing" in text and "net interconnect area: not available" in text
    figures = json.loads(out.read_text())
    assert figures["library"] == "tiny" and figures["node_nm"] is None
    assert figures["fmax_mhz"] == pytest.approx(1000 / figures["timing"]["period_ns"], abs=0.01)
    assert figures["memory_timing"]["adagp_ram_16x8_8"]["access_ns"] == 0.25
    assert figures["command"] == (
        "python -m synth asic --variant baseline --preset tiny --liberty tiny.lib --no-power"
    )
    assert "power_mw" not in figures
    monkeypatch.setattr(asic, "map_to_cells", None)
    assert main([*command, "--json", str(out)]) == 0
    assert json.loads(out.read_text()) == figures
    assert date.fromisoformat(figures["date"])
    # A measurement keeps its day.
    figures["date"] = old_entries(tmp_path / "cache")
    again = asic.measure(
        make_config(variant="baseline", preset="tiny"),
        library=asic.liberty.read(tiny_path),
        workload=None,
    )
    assert again == figures


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, ""),
        ({"workload": None}, " --no-power"),
        ({"workload": "tiny"}, " --workload tiny"),
        ({"target_ns": 2.0, "clock_ns": 4.5}, " --target 2 --clock-period 4.5"),
        ({"wire_load": "none"}, " --wire-load none"),
    ],
)
def test_command_makes_the_same_again(options, shown, tiny, tmp_path, monkeypatch):
    """Whatever differs from the defaults is in the command of the result."""
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path))
    monkeypatch.setattr(asic, "implement", lambda *a, **k: (None, None, 0))
    monkeypatch.setattr(asic, "_result", lambda *a: {})
    monkeypatch.setattr(asic, "power_report", lambda *a, **k: {})
    config = make_config(variant="low", preset="tiny")
    result = asic.measure(config, library=tiny, verilog="", **options)
    assert result["command"] == (
        f"python -m synth asic --variant low --preset tiny --liberty tiny.lib{shown}"
    )


def test_equal_modules_are_mapped_once(tiny, tmp_path, monkeypatch):
    """Under another top, with another memory beside it: the lanes come from the cache, equal."""
    pytest.importorskip("pyosys")
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "cache"))
    arguments = {"library": tiny, "target_ns": 1, "directory": tmp_path}
    first = map_to_cells(VERILOG, top="adagp_baseline", **arguments)
    assert first.memories == {"adagp_ram_16x8_8"}
    assert first.modules["adagp_ram_16x8_8"]["ports"]["read_data"]["direction"] == "output"
    mapped = []
    run_yosys = module_synthesis.run_yosys
    monkeypatch.setattr(
        module_synthesis,
        "run_yosys",
        lambda *a, name, **k: mapped.append(name) or run_yosys(*a, name=name, **k),
    )
    other = VERILOG.replace("adagp_baseline", "adagp_low").replace(
        "read_address(a[3:0])", "read_address(a[7:4])"
    )
    second = map_to_cells(other, top="adagp_low", **arguments)
    # The core connects its memory otherwise, and the top is another module by name.
    assert mapped == ["adagp_low", "adagp_core0"]
    assert second.modules["adagp_low.registers"] == first.modules["adagp_baseline.registers"]
    for name in ("adagp_post_lane_x", "adagp_core0.post"):
        assert second.modules[name] == first.modules[name]


def test_mapping_errors(tiny, tmp_path, monkeypatch):
    pytest.importorskip("pyosys")
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "cache"))
    arguments = {"top": "top", "library": tiny, "target_ns": 1, "directory": tmp_path}
    with pytest.raises(ToolError, match="has no module top"):
        map_to_cells("module other(); endmodule", **arguments)
    with pytest.raises(ToolError, match="Yosys failed on top: .*ERROR"):
        map_to_cells("module top(; endmodule", **arguments)
    latch = "module top(input g, d, output reg q); always @* if (g) q = d; endmodule"
    with pytest.raises(ToolError, match="no plain flip-flops: LATCH"):
        map_to_cells(latch, **arguments)
    plain = map_to_cells(
        "module top(input a, b, clk, output reg q); always @(posedge clk) q <= a & b; endmodule",
        **arguments,
    )
    assert flatten(plain.modules, "top", tiny).cells >= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--clock-period", "0"], "must be a time in nanoseconds, not '0'"),
        (["--clock-period", "fast"], "must be a time in nanoseconds, not 'fast'"),
    ],
)
def test_bad_options(options, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["asic", *options])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_bad_input(tiny_path, tmp_path, monkeypatch, capsys):
    library = ["--liberty", str(tiny_path)]
    (tmp_path / "file").write_text("")
    for options, message in [
        (["--variant", "huge"], "variant must be one of"),
        (["--set", "rows=0"], "rows must be"),
        (["--json", str(tmp_path / "no" / "x.json")], "Directory of --json does not exist"),
        (["--keep", str(tmp_path / "file")], "Directory of --keep cannot be made"),
        ([*library, "--wire-load", "long"], "no wire load 'long'"),
    ]:
        monkeypatch.setattr(asic, "emitted_verilog", lambda config: VERILOG)
        assert main(["asic", "--preset", "tiny", *options]) == 2
        error = capsys.readouterr().err
        assert message in error and len(error.splitlines()) == 1
    monkeypatch.setattr("synth.common.yosys.importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "cache"))
    assert main(["asic", "--variant", "baseline", "--preset", "tiny", *library]) == 2
    assert "Yosys is not installed" in capsys.readouterr().err
