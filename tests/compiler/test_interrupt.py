"""Ctrl-C in the compiler's command line.

Covers: compiler/__main__.py.
"""

import sys

import pytest


@pytest.mark.parametrize("library", ["numpy", "libtorch"])
def test_a_plan_is_interrupted(library, interrupted, loaded, tmp_path):
    """It says nothing before its end: interrupted while libraries are loaded, and then."""
    plot = tmp_path / "plan.png"
    command = [sys.executable, "-m", "compiler", "--plan", "--plot", str(plot)]
    done = interrupted(command, when=loaded(library))
    assert (done.status, done.output, done.errors) == (130, "", "compiler: interrupted\n")
    assert not list(tmp_path.iterdir())
