"""What a long simulation says of itself; the simulation is part of most other tests."""

import time

import pytest

from verif.system import accelerator
from verif.system.record import PROGRESS_FILE


def test_progress(tmp_path, monkeypatch):
    """A line when there are more cycles; not of the run before, nor of a file half written."""
    monkeypatch.setattr(accelerator, "_REPORT_SECONDS", 0.001)
    file, lines = tmp_path / PROGRESS_FILE, []
    file.write_text("5")
    with accelerator._reported(lines.append, tmp_path):
        assert not file.exists()
        file.write_text("")
        time.sleep(0.05)
        for number, cycles in enumerate((1_000_070, 2_000_070), start=1):
            file.write_text(str(cycles))
            limit = time.monotonic() + 20
            while len(lines) < number and time.monotonic() < limit:
                time.sleep(0.002)
        time.sleep(0.05)
    assert [line.partition(" cycles, ")[0] for line in lines] == [
        "simulation: 1,000,070",
        "simulation: 2,000,070",
    ]
    with accelerator._reported(None, None):
        pass
    with pytest.raises(ValueError, match="report needs a directory"):
        with accelerator._reported(lines.append, None):
            raise AssertionError("it must not run")
