"""Ctrl-C in the command line of the synthesis reports.

Covers: synth/__main__.py.
"""

import sys

from cli.interrupt import descendants


def test_a_measurement_is_interrupted(interrupted, tmp_path):
    figures = tmp_path / "column.json"
    done = interrupted(
        [sys.executable, "-m", "synth", "column", "--json", str(figures)], when=descendants
    )
    assert (done.status, done.errors) == (130, "synth: interrupted; what was measured is kept\n")
    assert not list(tmp_path.iterdir())


def test_while_libraries_are_loaded(interrupted, loaded):
    done = interrupted([sys.executable, "-m", "synth", "sram"], when=loaded("numpy"))
    assert (done.status, done.errors) == (130, "synth: interrupted; what was measured is kept\n")
