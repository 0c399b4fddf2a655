"""The runner: builds are cached, and nothing but a passing test counts as a pass.

Covers: verif/sim/results.py.
"""

import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from verif.sim import runner

DEPTH = 4

BENCH = '''
"""cocotb tests of the small FIFO; the last three must not count as a pass."""

import os
import random
from collections import deque
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge


async def start(dut):
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 1
    dut.w_en.value = 0
    dut.r_en.value = 0
    for _ in range(2):
        await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.rst.value = 0


@cocotb.test()
async def order_is_kept(dut):
    await start(dut)
    expected, read = deque(), 0
    while read < 100:
        await FallingEdge(dut.clk)
        dut.w_en.value = write = random.random() < 0.6
        dut.w_data.value = data = random.randrange(256)
        dut.r_en.value = take = random.random() < 0.5
        write = write and int(dut.w_rdy.value)
        if take and int(dut.r_rdy.value):
            actual = int(dut.r_data.value)
            assert actual == expected.popleft(), f"item {read}"
            read += 1
        if write:
            expected.append(data)


@cocotb.test()
async def level_counts_writes(dut):
    await start(dut)
    dut.w_en.value = 1
    for _ in range(10):
        await FallingEdge(dut.clk)
    assert int(dut.level.value) == int(os.environ["EXPECTED_LEVEL"])
    Path("seed.txt").write_text(f"{cocotb.RANDOM_SEED} {os.environ['ADAGP_SEED']}")


@cocotb.test()
@cocotb.parametrize(width=[8, 16])
async def by_width(dut, width):
    await start(dut)
    assert len(dut.w_data) == 8 or width == 16


@cocotb.test()
async def empty_fifo_has_data(dut):
    await start(dut)
    await FallingEdge(dut.clk)
    assert int(dut.r_rdy.value) == 1


@cocotb.test()
async def simulator_dies(dut):
    os._exit(3)


@cocotb.test()
async def never_ends(dut):
    while True:
        pass
'''


class SmallFIFO(wiring.Component):
    """A buffered FIFO of ``DEPTH`` bytes with plain ports."""

    def __init__(self):
        super().__init__(
            {
                "w_data": In(8),
                "w_en": In(1),
                "w_rdy": Out(1),
                "r_data": Out(8),
                "r_en": In(1),
                "r_rdy": Out(1),
                "level": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = inner = fifo.SyncFIFOBuffered(width=8, depth=DEPTH)
        m.d.comb += [
            inner.w_data.eq(self.w_data),
            inner.w_en.eq(self.w_en),
            self.w_rdy.eq(inner.w_rdy),
            self.r_data.eq(inner.r_data),
            inner.r_en.eq(self.r_en),
            self.r_rdy.eq(inner.r_rdy),
            self.level.eq(inner.level),
        ]
        return m


@pytest.fixture(scope="module")
def text():
    return runner.verilog(SmallFIFO(), name="small_fifo")


@pytest.fixture(scope="module")
def design(text):
    return runner.build(text, toplevel="small_fifo")


@pytest.fixture
def bench(tmp_path):
    """Path of the test module; its name differs per test so that no import is shared."""
    path = tmp_path / "small_fifo_bench.py"
    path.write_text(BENCH)
    return str(path)


def run(design, bench, tmp_path, testcase, **options):
    return runner.run(
        design,
        bench,
        testcase=testcase,
        directory=tmp_path / "run",
        extra_env={"EXPECTED_LEVEL": DEPTH},
        **options,
    )


def test_passing_tests_pass(design, bench, tmp_path, seed):
    result = run(design, bench, tmp_path, ["order_is_kept", "level_counts_writes"], seed=seed)
    assert result.passed and result.reason == ""
    assert [test.name for test in result.tests if test.status == "passed"] == [
        "order_is_kept",
        "level_counts_writes",
    ]
    assert result.tests[0].simulated_ns > 1000
    assert f" {seed}" in (tmp_path / "run" / "seed.txt").read_text()
    assert "order_is_kept" in result.log


def test_plain_name_selects_every_case(design, bench, tmp_path):
    result = run(design, bench, tmp_path, "by_width")
    assert [test.name for test in result.tests] == ["by_width/width=8", "by_width/width=16"]


def test_failing_test_is_reported(design, bench, tmp_path):
    with pytest.raises(runner.SimulationFailed, match="1 of 2 tests failed") as caught:
        run(design, bench, tmp_path, ["order_is_kept", "empty_fifo_has_data"], seed=5)
    assert "seed 5" in str(caught.value)
    assert "run.log" in str(caught.value)
    assert {test.name: test.status for test in caught.value.result.tests} == {
        "order_is_kept": "passed",
        "empty_fifo_has_data": "failed",
    }


def test_failing_test_is_reported_unchecked(design, bench, tmp_path):
    result = run(design, bench, tmp_path, "empty_fifo_has_data", check=False)
    assert not result.passed
    assert "empty_fifo_has_data" in result.reason


@pytest.mark.parametrize(
    ("testcase", "reason"),
    [
        ("no_such_test", "no test ran"),
        (["order_is_kept", "no_such_test"], "requested tests did not run: no_such_test"),
        ("simulator_dies", "simulator ended with status 3"),
        ("never_ends", "no end after 3 s"),
    ],
)
def test_what_is_not_a_pass(design, bench, tmp_path, testcase, reason):
    with pytest.raises(runner.SimulationFailed, match=reason):
        run(design, bench, tmp_path, testcase, timeout_seconds=3 if "ends" in testcase else 60)


def test_skipped_tests_are_not_a_pass(design, tmp_path):
    bench = tmp_path / "small_fifo_skipped.py"
    bench.write_text("import cocotb\n\n\n@cocotb.test(skip=True)\nasync def later(dut): ...\n")
    result = runner.run(design, str(bench), directory=tmp_path / "run", check=False)
    assert result.reason == "no test ran"
    assert [test.status for test in result.tests] == ["skipped"]


def test_missing_module_is_not_a_pass(design, tmp_path):
    with pytest.raises(runner.SimulationFailed, match="status|no test ran"):
        runner.run(design, "no_such_module", directory=tmp_path)


def test_results_of_an_earlier_run_do_not_count(design, bench, tmp_path):
    run(design, bench, tmp_path, "order_is_kept")
    assert not run(design, bench, tmp_path, "simulator_dies", check=False).tests


def test_second_build_is_found(design, text):
    again = runner.build(text, toplevel="small_fifo")
    assert again.cached
    assert again.executable == design.executable


def test_changed_source_or_option_is_another_build(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAGP_BUILD_DIR", str(tmp_path))
    text = "module m #(parameter W = 2) (input [W-1:0] a, output y); assign y = ^a; endmodule\n"
    first = runner.build(text, toplevel="m")
    assert not first.cached
    builds = {
        first.directory,
        runner.build(text.replace("^", "&"), toplevel="m").directory,
        runner.build(text, toplevel="m", parameters={"W": 3}).directory,
    }
    assert len(builds) == 3


def test_broken_build_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAGP_BUILD_DIR", str(tmp_path))
    text = "module m(input a, output y); assign y = a; endmodule\n"
    first = runner.build(text, toplevel="m")
    (first.directory / ".complete").unlink()
    first.executable.unlink()
    again = runner.build(text, toplevel="m")
    assert not again.cached
    assert again.executable.is_file()


def test_bad_verilog_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAGP_BUILD_DIR", str(tmp_path))
    for _ in range(2):  # a failure is not cached as a success
        with pytest.raises(runner.BuildFailed, match="syntax error"):
            runner.build("module m(input a; endmodule\n", toplevel="m")


def test_nothing_to_build():
    with pytest.raises(ValueError, match="no Verilog source"):
        runner.build({}, toplevel="m")


def test_waves_leave_a_waveform(text, bench, tmp_path):
    build = runner.build(text, toplevel="small_fifo", waves=True)
    result = run(build, bench, tmp_path, "order_is_kept", waves=True)
    assert "$enddefinitions" in result.waveform.read_text()


def test_waves_need_a_build_with_waves(design, bench, tmp_path):
    with pytest.raises(ValueError, match="built with waves=True"):
        run(design, bench, tmp_path, "order_is_kept", waves=True)


def test_same_seed_same_stimulus(design, bench, tmp_path):
    def simulated(seed):
        result = run(design, bench, tmp_path, "order_is_kept", seed=seed)
        return result.tests[0].simulated_ns

    chosen = random.Random(0).randrange(1000)
    assert simulated(chosen) == simulated(chosen)
    assert len({simulated(seed) for seed in range(1, 5)}) > 1


def test_design_of_several_cpp_files(bench, tmp_path, text):
    """Needs settings that the simulator's makefile leaves blank."""
    build = runner.build(text, toplevel="small_fifo", extra_args=["--output-split", "100"])
    assert len(list(build.directory.glob("Vtop___024root__*.cpp"))) > 2
    assert run(build, bench, tmp_path, "order_is_kept").passed


def test_inner_signal_on_request(tmp_path):
    text = """
        module inner(input clk, output [3:0] y);
            reg [3:0] state = 5; always @(posedge clk) state <= state + 1; assign y = ~state;
        endmodule
        module m(input clk, output [3:0] y); inner u (.clk(clk), .y(y)); endmodule
    """
    bench = tmp_path / "inner_bench.py"
    bench.write_text(
        "import cocotb\nfrom cocotb.triggers import Timer\n\n\n"
        "@cocotb.test()\nasync def state(dut):\n"
        "    await Timer(1, unit='ns')\n    assert int(dut.u.state.value) == 5\n"
    )
    visible = 'public_flat_rd -module "inner" -var "state"'
    build = runner.build(text, toplevel="m", configuration=visible)
    assert runner.run(build, str(bench), directory=tmp_path / "seen").passed
    hidden = runner.build(text, toplevel="m")
    assert not runner.run(hidden, str(bench), directory=tmp_path / "not", check=False).passed
