"""The sizes of queues are those of the hardware."""

from hw.dma.store import OUTSTANDING_WRITES
from verif.prove import sizes


def test_sizes_of_the_hardware(monkeypatch):
    monkeypatch.setattr(sizes, "PRESETS_OF_SIZES", ("tiny",))
    sizes.made.cache_clear()
    queues = sizes.queue_sizes("SyncFIFO")
    # Lengths of bursts whose beats are due, by far not the only one.
    assert queues[f"8x{OUTSTANDING_WRITES}"] == {"width": 8, "depth": OUTSTANDING_WRITES}
    assert len(queues) > 3
    assert all(name == f"{size['width']}x{size['depth']}" for name, size in queues.items())
    assert sizes.queue_sizes("SyncFIFOBuffered")
    for name in ("SkidBuffer", "HalfRateRegister"):
        widths = sizes.register_widths(name)
        assert widths
        assert all(name == f"{size['width']} bits" for name, size in widths.items())
    sizes.made.cache_clear()
