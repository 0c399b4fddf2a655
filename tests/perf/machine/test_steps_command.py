"""Cycles of batches by method, and what the file keeps."""

import json

import pytest

from perf.__main__ import main


@pytest.mark.long  # compiles VGG
def test_steps(tmp_path, capsys):
    path = tmp_path / "cycles.json"
    command = ["steps", "--model", "vgg", "--input", "1x4x4", "--classes", "3", "--batch", "2",
               "--variant", "baseline", "--preset", "tiny", "-o", str(path)]  # fmt: skip
    assert main([*command, "--program", "bp"]) == 0
    assert main([*command, "--program", "echo2"]) == 0
    document = json.loads(path.read_text())
    (plain, echoed) = (each["cycles"]["bp"] for each in document["steps"])
    assert [each["program"] for each in document["steps"]] == ["bp", "echo2"]
    assert plain < echoed < 1.5 * plain
    assert f"vgg 1x4x4, 2 images, echo2: bp {echoed:,}" in capsys.readouterr().out
    assert main([*command, "--latency", "5"]) == 2
    assert "memory latency 30, not of baseline at tiny" in capsys.readouterr().err


def test_refusals(tmp_path, capsys):
    command = ["steps", "--model", "vgg", "--input", "1x4x4", "--classes", "3", "--batch", "2",
               "--variant", "baseline", "--preset", "tiny",
               "-o", str(tmp_path / "cycles.json")]  # fmt: skip
    assert main([*command, "--program", "echo"]) == 2
    assert "must be bp, braked, adam, adagp or echoK, not 'echo'" in capsys.readouterr().err
    assert main([*command, "--latency", "-1"]) == 2
    assert "latency must be at least 0, not -1" in capsys.readouterr().err
