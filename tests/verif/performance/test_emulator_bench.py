"""The emulator's benchmark: what it measures, and that it would notice wrong results."""

import io

from rich.console import Console

from emulator.kernels import transfers
from hw.config import make_config
from verif.performance.emulator_bench import emulator_table, measure_emulator


def test_the_table_and_a_wrong_kernel(seed, monkeypatch):
    config = make_config(variant="baseline", preset="paper")
    result = measure_emulator(config, images=1, seed=seed, repeat=1)
    assert result["differences"] == 0
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(emulator_table(result, config))
    lines = [line.split("  ") for line in console.export_text().splitlines()]
    assert {"emulator", "golden"} <= {part.strip() for line in lines for part in line[:2]}

    real = transfers.transfer

    def wrong(command, layout, data, written, dram, dram_written, store):
        done = real(command, layout, data, written, dram, dram_written, store)
        if store:
            dram[command[0]["dram_address"]] ^= 1
        return done

    monkeypatch.setattr(transfers, "transfer", wrong)
    assert measure_emulator(config, images=1, seed=seed, repeat=1)["differences"]
