"""LoadEngine, StoreEngine and the AXI multiplexers on Verilator (verif/blocks/dma/cocotb_dma.py).

Covers: hw/dma/load.py, hw/dma/store.py, hw/bus/signatures.py,
verif/blocks/dma/cocotb_dma.py, verif/blocks/dma/cocotb_dma_speed.py, verif/blocks/dma/dma_bench.py,
verif/blocks/dma/dma_support.py.
"""

import json
import re

import pytest

from hw.config import make_config
from verif.blocks.dma.dma_bench import DmaBench
from verif.sim import runner
from verif.sim.axi_ram import AXI_RAM, component_ports, wrapper_verilog

_SMALL = {"variant": "baseline", "axi_address_width": 32}

#: Of these, what runs with --long only.
LONG = ("1:1 of 8 bytes", "1:4 of 4 bytes")
#: Name -> configuration: relations of beat, word and granule, in granules beat:word.
CONFIGS = {
    "1:1 of 8 bytes": {**_SMALL, "preset": "tiny"},
    "4:3 of 8 bytes": {"variant": "max"},
    "8:5 of 1 byte": {
        **_SMALL,
        "operand_format": "int8",
        "rows": 5,
        "columns": 5,
        "axi_data_width": 64,
        "axi_burst_beats": 5,
        "axi_outstanding_reads": 2,
    },
    "1:4 of 4 bytes": {
        **_SMALL,
        "rows": 8,
        "columns": 8,
        "axi_data_width": 32,
        "axi_burst_beats": 64,
    },
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in CONFIGS]
)
def test_dma(name, seed):
    fields = CONFIGS[name]
    config = make_config(**fields)
    core = config.cores[0]
    ratio = f"{config.beat_bytes // config.granule_bytes}:{core.word_bytes // config.granule_bytes}"
    assert name == f"{ratio} of {config.granule_bytes} byte{'s'[: config.granule_bytes > 1]}"
    text = runner.verilog(DmaBench(config), name="dma_bench")
    build = runner.build(text, toplevel="dma_bench")
    result = runner.run(
        build,
        "verif.blocks.dma.cocotb_dma",
        seed=seed,
        extra_env={"DMA_CONFIG": json.dumps(fields)},
    )
    print(f"seed {seed}, built in {build.seconds:.1f} s, ran in {result.seconds:.1f} s")


@pytest.mark.long
def test_throughput(seed):
    fields = {"variant": "max"}
    config = make_config(**fields)
    bench = DmaBench(config)
    text = runner.verilog(bench, name="dma_bench")
    wrapper = wrapper_verilog(
        name="dma_with_ram",
        design="dma_bench",
        ports=component_ports(bench, without="axi__"),
        axi_prefix="axi__",
        address_width=config.axi_address_width,
        data_width=config.axi_data_width,
        id_width=1,
        size_bytes=1 << 18,
    )
    build = runner.build(
        {"dma_bench.v": text, "wrapper.v": wrapper}, toplevel="dma_with_ram", files=[AXI_RAM]
    )
    result = runner.run(
        build,
        "verif.blocks.dma.cocotb_dma_speed",
        seed=seed,
        extra_env={"DMA_CONFIG": json.dumps(fields)},
    )
    lines = re.findall(r"(?:load|store), .* extra cycles per run", result.log)
    assert len(lines) == 8
    print(f"seed {seed}", *lines, sep="\n")
