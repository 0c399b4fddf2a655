"""The register file in simulation, and its description.

Covers: hw/registers/file.py, hw/registers/builder.py, hw/registers/map.py,
hw/registers/model.py, verif/blocks/registers/cocotb_registers.py,
verif/blocks/registers/register_bench.py.
"""

import json

import pytest

from hw.config import VARIANTS, make_config
from hw.primitives.shared_module import emit_verilog
from hw.registers import counter_bank
from hw.registers.file import RegisterFile
from hw.registers.map import ADDRESS_WIDTH, COUNTER_BASE, ErrorCode, Unit, register_map
from rtl_gen.ports import top_ports
from verif.sim import runner

CONFIGS = {
    "max": make_config(variant="max", preset="tiny"),
    "baseline-wide": make_config(variant="baseline", preset="paper", axi_address_width=64),
}


def simulate(config, seed, **options):
    component = RegisterFile(config)
    ports = {
        ("s_axil" + port.removeprefix("bus") if port.startswith("bus_") else port): value
        for port, value in top_ports(component).items()
    }
    text = emit_verilog(component, name="register_file", ports=ports)
    design = runner.build(text, toplevel="register_file")
    environment = {"ADAGP_CONFIG": json.dumps(config.as_dict())}
    return runner.run(
        design,
        "verif.blocks.registers.cocotb_registers",
        seed=seed,
        extra_env=environment,
        **options,
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_register_file(name, seed):
    result = simulate(CONFIGS[name], seed)
    assert len(result.tests) >= 15


@pytest.mark.parametrize("variant", VARIANTS)
def test_offsets_are_those_of_the_largest_variant(variant):
    largest = {r.name: r.offset for r in register_map(make_config(variant="max"))}
    registers = register_map(make_config(variant=variant))
    assert {r.name: r.offset for r in registers}.items() <= largest.items()
    assert any(r.name.startswith("CORE1") for r in registers) == (variant == "max")


def test_description_is_sound():
    registers = register_map(make_config())
    offsets = [register.offset for register in registers]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] < 1 << ADDRESS_WIDTH
    for register in registers:
        used = 0
        for field in register.fields:
            assert not used & field.mask, f"{register.name}.{field.name} overlaps"
            assert field.mask < 1 << 32
            assert 0 <= field.reset < 1 << field.width
            used |= field.mask
        assert register.doc
    for index, counter in enumerate(registers.counters):
        assert registers[f"{counter.name}_LO"].offset == COUNTER_BASE + 8 * index
        assert counter.unit


def test_numbers_of_the_interface():
    """These are a contract with software: a change needs a new VERSION."""
    registers = register_map(make_config())
    assert {name: registers[name].offset for name in ("ID", "CONTROL", "STATUS", "CYCLES_LO")} == {
        "ID": 0,
        "CONTROL": 0x40,
        "STATUS": 0x44,
        "CYCLES_LO": 0x100,
    }
    assert max(ErrorCode) < 256
    assert max(Unit) < 256
    assert (ErrorCode.WATCHDOG, ErrorCode.BATCH_FIRST) == (16, 18)


@pytest.mark.parametrize("fields", [{}, {"operand_format": "int8"}], ids=["training", "forward"])
def test_bits_of_control_and_status(fields):
    """The same where bits in between do not exist."""
    registers = register_map(make_config(**fields))
    places = {
        name: {field.name: field.lsb for field in registers[name].fields}
        for name in ("CONTROL", "STATUS", "INTERRUPT_STATUS", "INTERRUPT_ENABLE")
    }
    waiting, batch = ({}, {}) if fields else ({"WAITING": 3}, {"BATCH": 2})
    causes = {"DONE": 0, "ERROR": 1, "STOPPED": 3} | batch
    assert places == {
        "CONTROL": {"START": 0, "STOP": 1},
        "STATUS": {"BUSY": 0, "DONE": 1, "ERROR": 2, "STOPPED": 4, "DRAINING": 5} | waiting,
        "INTERRUPT_STATUS": causes,
        "INTERRUPT_ENABLE": causes,
    }
    assert registers["WATCHDOG"].offset == 0x7C and registers["WATCHDOG"].locked
    refused = [f"{r.name}.{f.name}" for r in registers for f in r.fields if f.idle_only]
    assert refused == ["CONTROL.START"]


def test_the_bench_notices_lost_events(seed, monkeypatch):
    """With too few bits for the events between two visits, the counter test must fail."""
    monkeypatch.setattr(counter_bank, "VISIT_CYCLES", 1)
    with pytest.raises(runner.SimulationFailed, match="counters_count_their_events"):
        simulate(CONFIGS["max"], seed, testcase="counters_count_their_events")
