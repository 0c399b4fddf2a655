"""Ctrl-C while hardware is generated and written.

Covers: rtl_gen/__main__.py, rtl_gen/output.py.
"""

import os
import sys

import pytest

from cli.interrupt import descendants
from rtl_gen import output
from rtl_gen.manifest import GENERATOR


def test_generating_is_interrupted(interrupted, tmp_path):
    """Verilog is being made: nothing has been written, nothing stays."""
    out = tmp_path / "out"
    done = interrupted(
        [
            sys.executable,
            "-m",
            "rtl_gen",
            "--preset",
            "tiny",
            "--variant",
            "baseline",
            "--output-dir",
            str(out),
        ],
        when=descendants,
    )
    assert (done.status, done.errors) == (130, "rtl_gen: interrupted\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("before", [True, False])
def test_a_directory_that_was_to_be_replaced_is_put_back(before, monkeypatch, tmp_path):
    """Ctrl-C between the two moves, before or after the second one."""
    place, manifest = tmp_path / "out", f'{{"generator": "{GENERATOR}", "files": {{}}}}'
    place.mkdir()
    (place / "manifest.json").write_text(manifest)
    rename = os.rename

    def interrupted_rename(source, target):
        last = source.name == "new"
        if not (last and before):
            rename(source, target)
        if last:
            monkeypatch.undo()
            raise SystemExit(130)

    monkeypatch.setattr(os, "rename", interrupted_rename)
    with pytest.raises(SystemExit):
        output.write(place, {"new.v": "module"})
    left = {path.name: path.read_text() for path in place.iterdir()}
    assert left == ({"manifest.json": manifest} if before else {"new.v": "module"})
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
