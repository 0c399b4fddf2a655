"""From a module in Python to the points that a simulation of it reaches.

Covers: verif/coverage/source_map.py, verif/sim/instrument.py.
"""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from hw.primitives.shared_module import emit_verilog
from verif.coverage.collector import Collector
from verif.coverage.source_map import read_sources
from verif.sim import runner
from verif.sim.environment import PROJECT_ROOT
from verif.sim.instrument import current, instrumented

NAMES = ("level", "full", "state", "after", "seen", r"\$signal")
FILE = "tests/verif/coverage/test_collector.py"


class Sample(wiring.Component):
    """Counts up to 5 while ``go``; ``back`` is never high in the bench."""

    go: In(1)
    back: In(1)
    level: Out(4)
    full: Out(1)

    def elaborate(self, platform):
        m = Module()
        held, seen = Signal(), Signal()
        m.submodules.queue = fifo.SyncFIFO(width=2, depth=2)
        m.d.comb += self.full.eq(self.level == 5)
        with m.If(self.go & ~self.full):
            m.d.sync += self.level.eq(self.level + 1)
        with m.Elif(self.back):
            m.d.sync += self.level.eq(self.level - 1)
        with m.If(self.full):
            m.d.sync += [held.eq(1), seen.eq(held)]
        state = Signal(2)
        with m.Switch(state):
            with m.Case(0):
                m.d.sync += state.eq(self.go)
            with m.Case(1):
                m.d.sync += state.eq(Signal(2, name="after", init=3))
            with m.Case(2):
                m.d.sync += state.eq(1)
        return m


BENCH = '''
"""Lets it count."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles


@cocotb.test()
async def count(dut):
    Clock(dut.clk, 10, unit="ns").start()
    dut.back.value = 0
    dut.go.value = 0
    dut.rst.value = 1
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    dut.go.value = 1
    await ClockCycles(dut.clk, 9)
'''


def counted(tmp_path, seed):
    """Counts of a run of the bench."""
    bench = tmp_path / "count_bench.py"
    bench.write_text(BENCH)
    collector = Collector()
    with instrumented(collector):
        assert current() is collector
        design = runner.build(
            emit_verilog(Sample(), name="sample", sources=True), toplevel="sample"
        )
        result = runner.run(design, str(bench), seed=seed)
        runner.run(design, str(bench), seed=seed)
    assert current() is None
    assert not (result.directory / "coverage.dat").exists()
    return collector.counts


def test_what_a_run_reaches(tmp_path, seed):
    counts = counted(tmp_path, seed)
    assert {point.file for point in counts} == {FILE}, "only what this project has written"
    lines = {point.what: count for point, count in counts.items() if point.kind == "line"}
    toggles = {point.what: count for point, count in counts.items() if point.kind == "toggle"}
    assert lines["with m.If(self.go & ~self.full):: taken"]
    assert lines["back: taken"] == 0 and lines["back: not taken"]
    assert lines["full: taken"]
    assert lines["state = 2'h1: taken"] and not lines["state = 2'h2: taken"]
    assert toggles["level[0] 0->1"] and toggles["level[0] 1->0"]
    assert toggles["level[2] 0->1"] and not toggles["level[2] 1->0"]
    assert not toggles["level[3] 0->1"]
    assert toggles["full 0->1"] == 2, "once in each of the two runs"
    assert toggles["{held, seen = Signal(), Signal()} 0->1"]
    assert not {what for what in toggles if what.startswith(("go", "back", "clk", "rst", "w_"))}


def test_a_text_without_sources():
    with pytest.raises(ValueError, match="names no sources; emit it with sources=True"):
        read_sources(emit_verilog(Sample(), name="sample"), PROJECT_ROOT)


def test_declarations_that_do_not_count_are_switched_off():
    text = emit_verilog(Sample(), name="sample", sources=True)
    sources = read_sources(text, PROJECT_ROOT)
    off = {n for first, last in sources.ignored for n in range(first, last + 1)}
    end = text[: text.index("module \\sample.queue")].count("\n")
    lines = dict(enumerate(text.splitlines()[:end], 1))
    assert max(off) == text.count("\n")
    for number, line in lines.items():
        if line.startswith(("  wire ", "  reg ", "  output ")):
            counts = any(f" {name}" in line for name in NAMES)
            assert counts == (number not in off), line
    assert sources.configuration("sample.v").startswith('coverage_off -file "*/sample.v" -lines 1-')


BRANCHES = r"""(* src = "ROOT/FILE:1" *)
module \sample (go);
  (* src = "ROOT/FILE:1" *)
  wire [1:0] level;
  wire \$1 ;
  always @* begin
    if (\$start ) begin end
    if (1'h0) begin end
    if (\$1 ) begin end
    if (go) begin end
    casez (level)
      2'h0, 2'h1:
          /* empty */;
      2'h2:
          casez (go)
            1'h0:
                /* empty */;
            default:
                /* empty */;
          endcase
      2'h3:
          /* empty */;
      default:
          /* empty */;
    endcase
  end
  assign \$1  = 1'h1;
endmodule
"""


def test_what_cannot_be_otherwise_is_no_branch():
    """Constants, and the default behind all values."""
    text = BRANCHES.replace("ROOT", str(PROJECT_ROOT)).replace("FILE", FILE)
    branches = [place.what for place in read_sources(text, PROJECT_ROOT).branches.values()]
    assert branches == ["go", "level = 2'h0, 2'h1", "level = 2'h2", "go = 1'h0", "go = default",
                        "level = 2'h3"]  # fmt: skip


def test_every_model_of_a_simulation_counts(tmp_path):
    """The fuzzer's harness makes several, each of which leaves a file."""
    build, run = tmp_path / "build", tmp_path / "run"
    (build / "src").mkdir(parents=True)
    run.mkdir()
    text = BRANCHES.replace("ROOT", str(PROJECT_ROOT)).replace("FILE", FILE)
    (build / "src" / "sample.v").write_text(text)
    line = text.splitlines().index("    if (go) begin end") + 1
    fields = {"f": "/x/sample.v", "l": line, "t": "branch", "page": "v_branch/sample", "o": "if"}
    record = "".join(f"\x01{key}\x02{value}" for key, value in fields.items())
    for number in range(2):
        (run / f"coverage{number}.dat").write_text(f"# SystemC::Coverage-3\nC '{record}' 3\n")
    collector = Collector()
    collector.collect(build, run)
    assert [(p.kind, p.file, p.what, n) for p, n in collector.counts.items()] == [
        ("line", FILE, "go: taken", 6)
    ]
    assert not list(run.iterdir())
