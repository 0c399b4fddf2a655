"""What the tools that build a simulation are told."""

import pytest

from verif.sim import environment


@pytest.mark.parametrize("known", [True, False])
def test_settings_of_make(monkeypatch, tmp_path, known):
    """Blanks within a value are escaped; a compiler gets the flags that it knows."""
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\nexit {1 - known}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    flags = environment.tool_environment()["MAKEFLAGS"].replace("\\ ", "\0").split(" ")
    settings = dict(flag.split("=", 1) for flag in flags)
    assert settings["CXX"] == str(compiler)
    options = settings["OPT_FAST"].split("\0")
    assert options[0] == "-O1"
    assert all(option.startswith("--param=") for option in options[1:])
    assert bool(options[1:]) == known


def test_environment_of_other_builds(monkeypatch):
    """A ``make`` that runs the tests does not share its job server."""
    monkeypatch.setenv("MAKELEVEL", "2")
    monkeypatch.setenv("MAKEFLAGS", "-j --jobserver-auth=3,4")
    found = environment.tool_environment()
    assert "MAKELEVEL" not in found
    assert "jobserver" not in found["MAKEFLAGS"]
    assert found["PATH"].startswith(str(environment.verilator_root() / "bin"))
