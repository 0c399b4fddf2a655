"""Python does not search for cycles while something is compiled or emitted, and does afterwards."""

import gc

import pytest
from torch import nn

from cli.collector import collector_paused
from compiler.errors import CompileError
from compiler.training.compile import compile_training
from hw.config import make_config
from rtl_gen.generate import accelerator_verilog


@pytest.mark.parametrize("enabled", [True, False])
def test_as_it_was_before(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
        with pytest.raises(ZeroDivisionError), collector_paused():
            raise ZeroDivisionError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_while_a_network_is_compiled(monkeypatch):
    seen = []

    def trace(*_):
        seen.append(gc.isenabled())
        raise CompileError("seen")

    monkeypatch.setattr("compiler.training.compile.trace", trace)
    config, enabled = make_config(variant="baseline", preset="tiny"), gc.isenabled()
    with pytest.raises(CompileError, match="seen"):
        compile_training(nn.Linear(2, 2), config, (2,), images=1)
    assert seen == [False] and gc.isenabled() is enabled


def test_while_verilog_is_emitted(monkeypatch):
    seen = []
    monkeypatch.setattr("rtl_gen.generate.make_top", lambda config: seen.append(gc.isenabled()))
    config, enabled = make_config(variant="baseline", preset="tiny"), gc.isenabled()
    with pytest.raises(AttributeError):
        accelerator_verilog(config)
    assert seen == [False] and gc.isenabled() is enabled
