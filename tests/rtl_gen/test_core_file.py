"""What FuseSoC makes of the core file, with its simulation targets.

Covers: rtl_gen/core_file.py, rtl_gen/testbench.py, rtl_gen/verilog.
"""

import os
import shutil
import subprocess
import sys

import pytest

from hw.config import make_config
from hw.isa.encoding import COMMAND_BYTES, Opcode, decode
from rtl_gen.core_file import core_file
from rtl_gen.generate import generate
from rtl_gen.output import write
from rtl_gen.testbench import copy_run
from verif.sim import environment, icarus

SMALLEST = {
    "rows": 2, "columns": 2, "training": False, "axi_data_width": 32, "buffer_banks": 2,
    "buffer_bank_depth": 64, "accumulator_depth": 16, "axi_outstanding_reads": 2,
    "command_queue_depth": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def tools():
    """The environment in which FuseSoC finds both simulators."""
    try:
        tool = icarus.find()
    except environment.ToolError as error:
        pytest.skip(str(error))
    return environment.tool_environment(), tool


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    directory = tmp_path_factory.mktemp("core")
    write(directory, generate(make_config(variant="baseline", preset="tiny", **SMALLEST)))
    return directory


def fusesoc(tools, core, target, place):
    """Status and text of `fusesoc run`."""
    variables, tool = tools
    programs = place / "bin"
    programs.mkdir(exist_ok=True)
    # What was only unpacked must be told where its parts are.
    for program, option in ((tool.compiler, "-B"), (tool.simulator, "-M")):
        base = f"{option}{tool.base}" if tool.base else ""
        (programs / program.name).write_text(f'#!/bin/sh\nexec {program} {base} "$@"\n')
        (programs / program.name).chmod(0o755)
    variables = variables | {"PATH": os.pathsep.join([str(programs), variables["PATH"]])}
    variables |= {f"XDG_{name}_HOME": str(place / name) for name in ("CONFIG", "CACHE", "DATA")}
    command = [sys.executable, "-m", "fusesoc.main", "--cores-root", core, "run"]
    command += ["--build-root", place / "build", "--target", target]
    done = subprocess.run(
        [*command, "adagp:accelerators:adagp_baseline"], env=variables, cwd=place,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_icarus(tools, core, tmp_path):
    status, text = fusesoc(tools, core, "sim", tmp_path)
    words = len((core / "memory.hex").read_text().split())
    assert status == 0, text
    assert f"PASS all {words} words as expected, " in text
    # A byte that should be another one: the status is that of a failure.
    wrong = shutil.copytree(core, tmp_path / "core")
    lines = (core / "expected.hex").read_text().split()
    lines[-1] = f"{int(lines[-1], 16) ^ 1:08x}"
    (wrong / "expected.hex").write_text("\n".join(lines))
    status, text = fusesoc(tools, wrong, "sim", tmp_path)
    assert status == 1
    assert f"FAIL 1 of {words} words differ" in text


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "said"), [("sim_verilator", "PASS all "), ("lint", "Verilator: Built")]
)
def test_verilator(tools, core, tmp_path, target, said):
    status, text = fusesoc(tools, core, target, tmp_path)
    assert status == 0, text
    assert said in text and "%Warning" not in text


@pytest.mark.parametrize("variant", ["baseline", "max"])
def test_copy(variant):
    """Every core copies other bytes, and nothing else of the window changes."""
    config = make_config(variant=variant, preset="tiny")
    run = copy_run(config)
    places = range(0, run.program_bytes, COMMAND_BYTES)
    commands = [decode(run.memory[place : place + COMMAND_BYTES]) for place in places]
    assert [opcode for opcode, _ in commands[-2:]] == [Opcode.STORE, Opcode.HALT]
    memory, seen = bytearray(run.memory), set()
    for (_, load), (_, store) in zip(commands[::2], commands[1::2], strict=False):
        assert load["core"] == store["core"] and load["buffer_address"] == store["buffer_address"]
        source, target, size = load["dram_address"], store["dram_address"], load["run_bytes"]
        data = run.memory[source : source + size]
        assert data != run.memory[target : target + size]
        memory[target : target + size] = data
        seen.add(data)
    assert len(seen) == len(config.cores)
    assert bytes(memory) == run.expected != run.memory
    assert len(memory) % config.beat_bytes == 0


def test_vendor_blocks():
    """Their models are the vendor's: no simulation without them."""
    text = core_file(make_config(preset="tiny", technology="ecp5"), top="adagp_max")
    assert "lint" in text and "sim" not in text
