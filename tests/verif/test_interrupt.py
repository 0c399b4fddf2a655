"""Ctrl-C in the command lines of the verification: one line, and no program goes on.

Covers: verif/__main__.py, verif/sim/runner.py.
"""

import contextlib
import sys

import pytest

from cli.interrupt import descendants

VERIF = [sys.executable, "-m", "verif"]


def test_run(interrupted):
    """After its first line, while golden or a simulation works."""
    done = interrupted([*VERIF, "run", "train-digits", "--variant", "baseline", "--batches", "9"])
    assert (done.status, done.errors) == (130, "verif: interrupted\n")
    assert done.output.startswith("seed 1 ")


@pytest.mark.parametrize("command", ["bench", "cycles"])
def test_measurements(command, interrupted, loaded, tmp_path):
    """They say nothing before their end: interrupted when they have loaded torch."""
    options = ["--preset", "tiny"]
    options += ["--json", str(tmp_path / "bench.json")] if command == "bench" else [
        "--images", "1", "--size", "8", "--output", str(tmp_path / "out")
    ]  # fmt: skip
    done = interrupted([*VERIF, command, *options], when=loaded("libtorch"))
    assert (done.status, done.errors) == (130, "verif: interrupted\n")
    assert not list(tmp_path.rglob("*.json")) and not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("program", ["verilator_bin", "make", "toy"])
def test_what_a_build_or_a_run_has_started(program, interrupted, tmp_path):
    """Verilator, make with the compilers below it, and a simulation; directories go."""
    # So many that Verilator takes seconds.
    count = 5000 if program == "verilator_bin" else 1
    script = tmp_path / "script.py"
    script.write_text(
        "from cli.interrupt import end_on_signals\n"
        "end_on_signals('toy')\n"
        "from verif.sim import runner\n"
        "line = 'reg [31:0] r{0}; always @(posedge clk) r{0} <= r{0} + {0};'\n"
        f"lines = ' '.join(line.format(number) for number in range({count}))\n"
        "text = f'module toy(input clk); {lines} endmodule'\n"
        f"design = runner.build(text, toplevel='toy')\n"
        f"runner.run(design, {str(tmp_path / 'bench.py')!r})\n"
    )
    (tmp_path / "bench.py").write_text(
        "import time, cocotb\n\n\n@cocotb.test()\nasync def sleep(dut):\n    time.sleep(60)\n"
    )
    build = tmp_path / "build"

    def running(process):
        for child in descendants(process):
            with contextlib.suppress(OSError), open(f"/proc/{child}/comm") as file:
                if file.read().strip() == program:
                    return True
        return False

    done = interrupted([sys.executable, str(script)], when=running, build=build)
    assert (done.status, done.errors) == (130, "toy: interrupted\n")
    left = [path for path in build.rglob("*") if path.is_dir()]
    # The complete build stays, and nothing else.
    assert [path.name.partition("-")[0] for path in left if path.parent != build] == (
        ["toy", "src"] if program == "toy" else []
    )
