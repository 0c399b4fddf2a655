"""The kept Verilog is that of the generator, and changes with what it is made of."""

import pytest

from hw.config import make_config
from rtl_gen.generate import accelerator_verilog
from synth.common import emitted_verilog
from synth.common.cache import ENVIRONMENT


@pytest.mark.long
def test_kept_text_is_the_generators(tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    config = make_config(variant="low", preset="tiny", rows=2, columns=2)
    text, _ports = accelerator_verilog(config)
    emitted_verilog.emitted_verilog.cache_clear()
    assert emitted_verilog.emitted_verilog(config) == text
    emitted_verilog.emitted_verilog.cache_clear()
    calls = []
    monkeypatch.setattr(
        emitted_verilog, "accelerator_verilog", lambda config: calls.append(1) or ("new", {})
    )
    assert emitted_verilog.emitted_verilog(config) == text and not calls
    # Other sources, another technology: other texts.
    monkeypatch.setattr(emitted_verilog, "source_hash", lambda: "changed")
    emitted_verilog.emitted_verilog.cache_clear()
    assert emitted_verilog.emitted_verilog(config) == "new"
    assert emitted_verilog.emitted_verilog(config, "ecp5") == "new" and len(calls) == 2
    emitted_verilog.emitted_verilog.cache_clear()


def test_sources_are_hashed():
    assert len(emitted_verilog.source_hash()) == 16
