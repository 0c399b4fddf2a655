"""The text is right under every language level, free of warnings, and does what Amaranth's does.

Covers: verif/sim/icarus.py.
"""

import random
import re
import subprocess
import sys

import pytest
from amaranth.back import verilog
from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import make_config
from hw.primitives.shared_module import emit_verilog
from hw.verilog.backend import WAIVERS
from rtl_gen.generate import accelerator_verilog
from verif.sim import environment, icarus


def lint(text, directory, *options):
    """What Verilator has to say about ``text`` with ``options``."""
    path = directory / "text.v"
    path.write_text(text)
    done = subprocess.run(
        [environment.verilator_binary(), "--lint-only", *options, path],
        env=environment.tool_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return "".join(
        line for line in (done.stdout + done.stderr).splitlines(True) if not line.startswith("- ")
    )


class Everything(wiring.Component):
    """Every operation that is rewritten, on operands of unlike widths and signs."""

    def __init__(self, rng):
        self.rng = rng
        super().__init__({"a": In(7), "b": In(signed(4)), "c": In(3), "o": Out(64), "p": Out(40)})

    def elaborate(self, platform):
        m = Module()
        a, b, c, rng = self.a, self.b, self.c, self.rng
        constants = [rng.randrange(128) for _ in range(4)]
        results = [
            a == c, a != b, a < constants[0], a > c, b <= c, b >= -3, c >= 0, c <= 7, a == 5,
            a + c, a - b, b + (-1), a + constants[1], a << c, a >> c, b >> c, (a >> c)[:2],
            a // 3, b % 4, a // (c | 1), a.bit_select(c, 2), b << 2, a * b, ~(a == 0), a.any(),
        ]  # fmt: skip
        total = Signal(64)
        m.d.comb += total.eq(Cat(*results))
        m.d.sync += self.o.eq(total)
        state = Signal(3)
        choice = Signal(40)
        with m.Switch(state):
            with m.Case(0, 3):
                m.d.comb += choice[:7].eq(a)
                with m.If(c[0]):
                    m.d.sync += state.eq(state + 1)
                with m.Elif(c[1] | (b == 2)):
                    m.d.sync += state.eq(c)
            with m.Case("1-1"):
                m.d.comb += choice[5:12].eq(constants[2])
                m.d.sync += state.eq(Array([1, 2, c])[c[:2]])
            with m.Case(2):
                pass
            with m.Case(4):
                m.d.comb += choice[20:].eq(Mux(c[2], a + 1, b - a))
                m.d.sync += state.eq(0)
        m.d.comb += self.p.eq(choice)
        return m


_PROOF = """
from pyosys import libyosys as y
d = y.Design()
for name in ("gold", "gate"):
    y.run_pass(f"read_verilog {name}.v", d)
    y.run_pass("proc; memory_collect; opt_clean", d)
    y.run_pass(f"design -stash {name}", d)
for name in ("gold", "gate"):
    y.run_pass(f"design -copy-from {name} -as {name} top", d)
for command in ("equiv_make gold gate equiv", "delete gold gate", "opt_clean", "equiv_simple",
                "equiv_induct", "equiv_status -assert"):
    y.run_pass(command, d)
"""


def proof(gold, gate, directory):
    """Yosys' proof that two texts of a module ``top`` are equal in function; raises if not."""
    (directory / "gold.v").write_text(gold)
    (directory / "gate.v").write_text(gate)
    done = subprocess.run(
        [sys.executable, "-c", _PROOF], cwd=directory, capture_output=True, text=True, check=False
    )
    found = re.search(r"Of those cells (\d+) are proven and (\d+) are unproven", done.stdout)
    assert found and int(found[1]) > 100, f"no proof was made:\n{done.stdout[-2000:]}"
    return done.returncode == 0 and not int(found[2])


def test_it_does_what_amaranths_own_text_does(seed, tmp_path):
    print(f"seed {seed}")
    gold = verilog.convert(Everything(random.Random(seed)), name="top", strip_internal_attrs=True)
    gate = emit_verilog(Everything(random.Random(seed)), name="top")
    assert lint(gate, tmp_path, "-Wall") == ""
    assert "WIDTH" in lint(gold, tmp_path, "-Wall"), "the component breaks no rule"
    assert proof(gold, gate, tmp_path)


def test_the_proof_can_fail(seed, tmp_path):
    gold = emit_verilog(Everything(random.Random(seed)), name="top")
    gate = gold.replace("a < ", "a <= ", 1)
    assert gate != gold
    assert not proof(gold, gate, tmp_path)


class Constant(wiring.Component):
    """A combinational process whose inputs never change, and a register that copies its result."""

    def __init__(self):
        super().__init__({"o": Out(4)})

    def elaborate(self, platform):
        m = Module()
        kept, result = Signal(init=1), Signal(4)
        m.d.sync += [kept.eq(kept), self.o.eq(result)]
        m.d.comb += result.eq(3)
        with m.If(kept):
            m.d.comb += result.eq(5)
        return m


_TESTBENCH = """
module testbench;
  reg clk; wire [3:0] o;
  initial clk = 1'b0;
  top dut (.clk(clk), .rst(1'b0), .o(o));
  initial begin
    #1 clk = 1'b1;
    #1 $display("%h", o);
  end
endmodule
"""


@pytest.fixture
def icarus_verilog():
    try:
        return icarus.find()
    except environment.ToolError as error:
        pytest.skip(str(error))


def test_processes_start_under_every_language_level(icarus_verilog, tmp_path):
    """Amaranth's own text leaves the process at X from -g2005-sv on."""
    found = {}
    texts = {
        "own": emit_verilog(Constant(), name="top"),
        "amaranth": verilog.convert(Constant(), name="top", strip_internal_attrs=True),
    }
    for name, text in texts.items():
        source = tmp_path / f"{name}.v"
        source.write_text(text + _TESTBENCH)
        for level in icarus.LANGUAGE_LEVELS:
            program = tmp_path / f"{name}.vvp"
            assert icarus_verilog.compile([source], level=level, output=program) == ""
            found[name, level] = icarus_verilog.run(program, directory=tmp_path).strip()
    print(icarus_verilog.version, found)
    assert {level: found["own", level] for level in icarus.LANGUAGE_LEVELS} == dict.fromkeys(
        icarus.LANGUAGE_LEVELS, "5"
    )
    assert found["amaranth", "2012"] == "x", "Amaranth's text would do, too"


@pytest.fixture(scope="module")
def accelerator():
    """The text of an accelerator with everything: two cores, odd sizes, a wide bus."""
    fields = {"rows": 5, "columns": 3, "axi_data_width": 128, "operand_format": "int8"}
    return accelerator_verilog(make_config(variant="max", preset="tiny", **fields))[0]


def test_the_accelerator_has_no_warnings(accelerator, tmp_path):
    """-Wall has all that goes without saying, too."""
    assert lint(accelerator, tmp_path, "-Wall") == ""


def test_every_waiver_is_needed_and_named(accelerator, tmp_path):
    lines = [line for line in accelerator.splitlines(True) if "verilator lint_" in line]
    named = [line.split()[3] for line in lines if "lint_off" in line]
    assert named == list(WAIVERS)
    bare = "".join(line for line in accelerator.splitlines(True) if line not in lines)
    found = lint(bare, tmp_path, "-Wall", "-Wno-fatal")
    classes = {line.split(":")[0] for line in found.splitlines() if line.startswith("%")}
    assert classes == {f"%Warning-{rule}" for rule in WAIVERS}


@pytest.mark.long
@pytest.mark.parametrize("operand_format", ["bf16", "int8"])
@pytest.mark.parametrize("variant", ["baseline", "low", "efficient", "max"])
@pytest.mark.parametrize("preset", ["tiny", "paper"])
def test_no_accelerator_has_warnings(variant, preset, operand_format, tmp_path):
    config = make_config(variant=variant, preset=preset, operand_format=operand_format)
    assert lint(accelerator_verilog(config)[0], tmp_path, "-Wall") == ""
