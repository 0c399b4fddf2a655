"""What a long simulation says of itself; the simulation is part of most other tests."""

from verif.system import accelerator


def test_progress(monkeypatch):
    """A line when a minute has passed since the last one, and cycles as the device gives them."""
    now, lines = iter([0, 20, 70, 71, 140]), []
    monkeypatch.setattr(accelerator.time, "perf_counter", lambda: float(next(now)))
    reporter = accelerator._Reporter(lines.append)
    for cycles in (1_000_000, 2_000_070, 3_000_000, 4_000_000):
        reporter(cycles)
    assert lines == ["simulation: 2,000,070 cycles, 70 s", "simulation: 4,000,000 cycles, 140 s"]
