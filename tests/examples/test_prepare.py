"""The examples run: in Icarus under every language level, and as a C program on a Verilator model.

Covers: verif/sim/icarus.py, examples/host, rtl_gen/verilog.
"""

import subprocess
from pathlib import Path

import pytest

from examples.__main__ import main, write_example
from hw.config import make_config
from verif.sim import environment, icarus

EXAMPLES = Path(__file__).parents[2] / "examples"

#: Everything as small as a convolution can be computed with.
SMALLEST = {
    "rows": 2,
    "columns": 2,
    "training": False,
    "axi_data_width": 32,
    "buffer_banks": 2,
    "buffer_bank_depth": 64,
    "accumulator_depth": 16,
    "axi_outstanding_reads": 2,
    "command_queue_depth": 2,
}


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Folder of the example for the smallest accelerator."""
    directory = tmp_path_factory.mktemp("example")
    write_example(make_config(variant="baseline", preset="tiny", **SMALLEST), directory)
    return directory


@pytest.fixture(scope="module")
def tool():
    try:
        return icarus.find()
    except environment.ToolError as error:
        pytest.skip(str(error))


def simulate(tool, directory, level, *, name="testbench"):
    """What the testbench prints; the compiler must have nothing to say."""
    rtl = directory / "rtl"
    program = directory / f"{name}-{level}.vvp"
    said = tool.compile(sorted(rtl.glob("*.v")), level=level, output=program, include=[rtl])
    assert said == ""
    return tool.run(program, directory=rtl)


@pytest.mark.parametrize("level", icarus.LANGUAGE_LEVELS)
def test_icarus(tool, example, level):
    printed = simulate(tool, example, level)
    words = len((example / "rtl" / "expected.hex").read_text().split())
    print(tool.version, printed)
    assert printed.startswith(f"PASS all {words} words as expected, ")


@pytest.mark.long
@pytest.mark.parametrize("variant", ["low", "efficient", "max"])
def test_icarus_with_training(tool, variant, tmp_path):
    write_example(make_config(variant=variant, preset="tiny"), tmp_path)
    assert simulate(tool, tmp_path, "2012").startswith("PASS ")


def test_icarus_sees_a_wrong_word(tool, example):
    expected = example / "rtl" / "expected.hex"
    words = expected.read_text().split()
    right = words[-1]
    words[-1] = f"{int(right, 16) ^ 0x100:0{len(right)}x}"
    kept = expected.read_text()
    expected.write_text("\n".join(words))
    try:
        printed = simulate(tool, example, "2005", name="wrong")
    finally:
        expected.write_text(kept)
    place = f"word {len(words) - 1} of the window is {right}, expected {words[-1]}"
    assert place in printed
    assert f"FAIL 1 of {len(words)} words differ" in printed


def test_host(example):
    """The C program against the generated header, with all warnings as errors."""
    done = subprocess.run(
        [
            "make", "-C", EXAMPLES / "host", f"EXAMPLE={example}", "OPT_FAST=-O0", "CFLAGS=-O0",
            f"VERILATOR={environment.verilator_binary()}",
        ],
        env=environment.tool_environment(),
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "%Warning" not in done.stdout + done.stderr
    size = (example / "memory.bin").stat().st_size
    fetch = "error 13 of unit 1"  # PROGRAM_END, FETCH
    assert f"without HALT: {fetch} at 0x" in done.stdout
    assert "\nstopped\n" in done.stdout
    assert done.stdout.count(f"all {size} bytes as expected\n") == 2
    assert "\nPASS\n" in done.stdout


def test_wrong_input(capsys, tmp_path):
    assert main(["--set", "rows=0", "--output-dir", str(tmp_path)]) == 2
    assert "examples: rows must be" in capsys.readouterr().err
    (tmp_path / "rtl").mkdir()
    (tmp_path / "rtl" / "mine.v").write_text("")
    assert main(["--output-dir", str(tmp_path)]) == 2
    assert "holds files but no manifest.json" in capsys.readouterr().err
    assert not (tmp_path / "memory.bin").exists()


def test_levels_are_checked(tool, tmp_path):
    with pytest.raises(ValueError, match="level must be one of 1995, 2001, .*, not '2020'"):
        tool.compile([], level="2020", output=tmp_path / "a")
    broken = tmp_path / "broken.v"
    broken.write_text("module broken; wire wire; endmodule")
    with pytest.raises(environment.ToolError, match="iverilog -g2005 failed:\n.*syntax error"):
        tool.compile([broken], level="2005", output=tmp_path / "a")


def test_where_it_comes_from(monkeypatch, tmp_path):
    monkeypatch.setenv("ADAGP_BUILD_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(environment.ToolError, match="`make tools` unpacks it"):
        icarus.find()
    with pytest.raises(environment.ToolError, match="there is no apt-get"):
        icarus.fetch()
    for name in ("iverilog", "vvp"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert icarus.fetch() == icarus.Icarus(
        compiler=tmp_path / "iverilog", simulator=tmp_path / "vvp"
    )
