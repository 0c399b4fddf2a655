"""The monitor's waits and the signals that it looks for; with --long a real run."""

import json

import pytest

from hw.config import VARIANTS, make_config
from hw.isa.encoding import Opcode, queue_opcodes
from hw.registers.map import register_map
from verif.__main__ import main
from verif.coverage.monitor import LOG, monitor_verilog, waits


@pytest.mark.parametrize("variant", VARIANTS)
def test_waits(variant):
    """Every queue for its own causes, and every counter of waiting with every opcode."""
    config = make_config(variant=variant, preset="tiny")
    found = waits(config)
    assert len(set(found)) == len(found)
    counters = {name for name in register_map(config).events if "stall" in name or "wait" in name}
    assert {wait.cause for wait in found} == counters | {"semaphore", "engine", "queue", "drain"}
    for core in config.cores:
        for opcode in queue_opcodes(core):
            causes = {w.cause for w in found if (w.core, w.opcode) == (core.index, opcode)}
            own = {name for name in counters if name.startswith(f"core{core.index}_")}
            assert causes >= own | {"read_stall", "write_stall", "semaphore", "engine", "queue"}
            assert not any(f"core{1 - core.index}" in cause for cause in causes)
    batch = {wait.cause for wait in found if wait.opcode is Opcode.BATCH}
    assert batch == {"drain", "batch_wait"}


def modules(config, without=""):
    """Headers of the modules that the monitor looks into."""
    ports = {
        "fetch": ["command__valid", "command__payload"],
        "sequencer": [
            "\\begin ", "\\finish$50 ", "stopped", "dispatched", "empty",
            "error__valid", "error__code", "error__unit",
        ],
        "registers": [f"events__{event}" for event in register_map(config).events],
    }  # fmt: skip
    names = {f"\\adagp_{config.variant}.{name} ": ports for name, ports in ports.items()}
    handshakes = [f"{a}__{b}" for a in ("push", "take", "command") for b in ("valid", "ready")]
    for core in config.cores:
        for opcode in queue_opcodes(core):
            name = f"\\adagp_core{core.index}.{opcode.name.lower()}_queue "
            names[name] = ["empty", *handshakes]
    lines = []
    for name, ports in names.items():
        kept = ", ".join(port for port in ports if not without or without not in port)
        lines.append(f"module {name}({kept}\n, clk);")
    return "\n".join(lines)


def test_names_with_numbers_are_found():
    config = make_config(variant="max", preset="tiny")
    text = monitor_verilog(config, modules(config))
    assert f'$fopen("{LOG}", "w")' in text
    assert "if (accelerator.sequencer.\\finish$50 ) begin" in text
    assert "if (accelerator.sequencer.\\begin ) begin" in text
    for number, wait in enumerate(waits(config)):
        if wait.cause == "core1_vector_stall" and wait.opcode is Opcode.POST:
            expected = f"assign now[{number}] = accelerator.registers.events__core1_vector_stall"
            assert f"{expected} && !accelerator.core1.post_queue.empty;" in text


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ("finish", "no port finish of module adagp_low.sequencer"),
        ("take__ready", "no port take__ready of module adagp_core0.load_queue"),
        ("write_stall", "no port events__write_stall of module adagp_low.registers"),
    ],
)
def test_a_signal_that_is_missing(without, message):
    config = make_config(variant="low", preset="tiny")
    with pytest.raises(ValueError, match=message):
        monitor_verilog(config, modules(config, without))


@pytest.mark.long
def test_a_real_run(tmp_path, seed):
    """What the quick campaign cannot miss: commands, errors and waits that its programs are for."""
    assert main(["coverage", "--quick", "--seed", str(seed), "--output", str(tmp_path)]) == 0
    values = json.loads((tmp_path / "coverage.json").read_text())
    missed = {*values["without_reason"], *values["waived"]}
    for file, what in {
        "hw/control/fetch.py": "error READ_SLVERR of FETCH",
        "hw/dma/load.py": "command LOAD run_bytes above a word",
        "hw/engines/matmul/engine.py": "wait MATMUL on core 0 for core0_stall_weights",
        "hw/control/batch_control.py": "command BATCH first 1",
    }.items():
        assert f"functional {file}: baseline: {what}" not in missed
    assert "line hw/control/sequencer.py: with m.If(bad_opcode):: taken" not in missed
    totals = values["totals"]
    assert all(kind["reached"] > kind["points"] / 2 for kind in totals.values()), totals
