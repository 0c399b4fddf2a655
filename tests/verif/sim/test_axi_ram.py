"""The fast simulation memory; see verif/blocks/memory/cocotb_axi_ram.py.

Covers: verif/blocks/memory/cocotb_axi_ram.py.
"""

import pytest

from verif.sim import runner
from verif.sim.axi_ram import AXI_RAM, wrapper_verilog


def test_axi_ram(seed):
    build = runner.build(
        {"axi_ram.v": AXI_RAM.read_text()},
        toplevel="axi_ram",
        parameters={"DATA_WIDTH": 64, "SIZE_BYTES": 1 << 16, "ADDRESS_WIDTH": 32, "ID_WIDTH": 3},
    )
    result = runner.run(build, "verif.blocks.memory.cocotb_axi_ram", seed=seed)
    print(f"seed {seed}, built in {build.seconds:.1f} s, ran in {result.seconds:.1f} s")


def test_wrapper_refuses_odd_sizes():
    with pytest.raises(ValueError, match="size_bytes must be a power of two from 4096 up, not 5"):
        wrapper_verilog(
            name="a", design="b", ports=[], axi_prefix="", address_width=32, data_width=64,
            id_width=1, size_bytes=5,
        )  # fmt: skip
