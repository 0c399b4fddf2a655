"""What the tools that build a simulation are told."""

import pytest

from verif.sim import environment


@pytest.mark.parametrize(
    ("compiler", "queries"),
    [("g++ (Debian 12.2.0-14) 12.2.0", True), ("Apple clang version 15.0.0", False)],
)
def test_settings_of_make(monkeypatch, compiler, queries):
    """Blanks within a value are escaped; only GCC knows its own parameters."""
    monkeypatch.setattr(environment, "tool_versions", lambda: {"compiler": compiler})
    flags = environment.tool_environment()["MAKEFLAGS"].replace("\\ ", "\0").split(" ")
    settings = dict(flag.split("=", 1) for flag in flags)
    options = settings["OPT_FAST"].split("\0")
    assert options[0] == "-O1"
    assert all(option.startswith("--param=") for option in options[1:])
    assert bool(options[1:]) == queries


def test_environment_of_other_builds(monkeypatch):
    """A ``make`` that runs the tests does not share its job server."""
    monkeypatch.setenv("MAKELEVEL", "2")
    monkeypatch.setenv("MAKEFLAGS", "-j --jobserver-auth=3,4")
    found = environment.tool_environment()
    assert "MAKELEVEL" not in found
    assert "jobserver" not in found["MAKEFLAGS"]
    assert found["PATH"].startswith(str(environment.verilator_root() / "bin"))
