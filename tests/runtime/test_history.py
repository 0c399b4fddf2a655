"""Records of epochs as a table, a picture and a file."""

import io
import json

import pytest
from rich.console import Console

from golden.prediction.schedule import Phase
from runtime.history import EpochSums, History
from runtime.session import BatchResult

COUNTERS = {"CYCLES": 1000, "CORE0_VECTORS": 250, "READ_BYTES": 3_000_000, "WRITE_BYTES": 500_000}


def history(counters):
    """Two epochs of three batches, one of them without a loss."""
    found = History(method="adagp", device="max, rtl")
    for epoch in range(2):
        sums = EpochSums()
        for number in range(3):
            known = number != 1
            sums.add(
                BatchResult(
                    loss=2.0 - number if known else None, correct=3 if known else None,
                    phase=Phase.BP if known else Phase.GP, counters=counters, rejected=1,
                ),
                4, 0.1, 0.5,
            )  # fmt: skip
        found.epochs.append(sums.record(epoch, validation=0.25, gates={"0": 0.5, "1": 0.75}))
    return found


def text(table):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_sums():
    epoch = history(COUNTERS).epochs[1]
    assert (epoch.batches, epoch.samples, epoch.loss, epoch.accuracy) == (3, 12, 1.0, 6 / 8)
    assert (epoch.cycles, epoch.utilisation, epoch.bytes) == (3000, 0.25, 10_500_000)
    assert epoch.phases == {"BP": 2, "GP": 1} and epoch.rejected == 3 and epoch.seconds == 1.5


def test_table_shows_what_is_known():
    found = text(history(COUNTERS).table())
    for part in ("adagp on max, rtl", "2 BP, 1 GP", "75.0%", "25.0%", "3.0", "10.5", "0.50 0.75"):
        assert part in found, found
    found = text(history({}).table())
    assert "kcycles" not in found and "busy" not in found


def test_file_and_picture(tmp_path):
    path = tmp_path / "history.json"
    history(COUNTERS).save(path)
    assert History.restored(json.loads(path.read_text())) == history(COUNTERS)
    history({}).plot(tmp_path / "history.png")
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="nothing to plot"):
        History(method="bp", device="max, rtl").plot(tmp_path / "none.png")
