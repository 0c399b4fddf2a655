"""Benches of single blocks for coverage: what a whole accelerator of a small size cannot show."""

import json
from collections.abc import Callable

from hw.config import make_config
from hw.engines.loss.engine import LossEngine
from hw.engines.post.engine import PostEngine
from hw.engines.vector.engine import VectorEngine
from hw.memory.accumulator import AccumulatorMemory
from hw.primitives.shared_module import emit_verilog
from hw.registers.file import RegisterFile
from rtl_gen.ports import top_ports
from verif.blocks.dma.dma_bench import DmaBench
from verif.blocks.engines.matmul_bench import MatmulBench
from verif.blocks.support import CONFIG_VARIABLE
from verif.sim import runner

__all__ = ["BLOCKS"]

#: Beats of another width than words, bursts of several lengths.
_DMA = {
    "variant": "baseline", "operand_format": "int8", "rows": 5, "columns": 5,
    "axi_data_width": 64, "axi_address_width": 40, "axi_burst_beats": 64,
    "axi_outstanding_reads": 2,
}  # fmt: skip
#: Rows, columns and lanes of POST and VECTOR: several groups in a word and in a vector.
_LANES = {"rows": 6, "columns": 9, "post_lanes": 3}


def _tiny(**fields):
    return make_config(preset="tiny", variant="baseline", **fields)


def _bench(component, name, bench, config, seed, *, ports=None, **environment):
    text = emit_verilog(component, name=name, ports=ports, sources=True)
    runner.run(
        runner.build(text, toplevel=name),
        f"verif.blocks.{bench}",
        seed=seed,
        extra_env={CONFIG_VARIABLE: json.dumps(config.as_dict()), **environment},
    )


def _registers(seed):
    config = make_config(variant="max", preset="paper", axi_address_width=64)
    component = RegisterFile(config)
    ports = {
        f"s_axil{port.removeprefix('bus')}" if port.startswith("bus_") else port: value
        for port, value in top_ports(component).items()
    }
    _bench(component, "register_file", "registers.cocotb_registers", config, seed, ports=ports)


def _dma(seed):
    design = runner.build(
        runner.verilog(DmaBench(make_config(**_DMA)), name="dma_bench"), toplevel="dma_bench"
    )
    environment = {"DMA_CONFIG": json.dumps(_DMA)}
    runner.run(design, "verif.blocks.dma.cocotb_dma", seed=seed, extra_env=environment)


def _accumulator(seed):
    config = _tiny(rows=2, columns=3, accumulator_depth=37)
    _bench(
        AccumulatorMemory(config.cores[0]), "accumulator", "memory.cocotb_accumulator", config, seed
    )


def _matmul(operand_format):
    def run(seed):
        config = _tiny(
            operand_format=operand_format, rows=3, columns=2, accumulator_depth=64,
            buffer_bank_depth=128, buffer_banks=2,
        )  # fmt: skip
        _bench(MatmulBench(config), "matmul_bench", "engines.cocotb_matmul", config, seed)

    return run


def _engine(component, name, variable, **fields):
    def run(seed):
        config = _tiny(**_LANES | fields)
        bench = f"engines.cocotb_{name}"
        _bench(component(config, config.cores[0]), name, bench, config, seed, **{variable: 40})

    return run


#: Name -> what simulates the block with a seed; it raises when a result is wrong.
BLOCKS: dict[str, Callable[[int], None]] = {
    "registers": _registers,
    "dma": _dma,
    "accumulator": _accumulator,
    "matmul": _matmul("bf16"),
    "matmul int8": _matmul("int8"),
    "post": _engine(PostEngine, "post", "POST_COMMANDS"),
    "post int8": _engine(PostEngine, "post", "POST_COMMANDS", operand_format="int8"),
    "vector": _engine(VectorEngine, "vector", "VECTOR_COMMANDS"),
    # Words of four groups, of which two hold a float32 number per lane.
    "vector 8x2": _engine(
        VectorEngine, "vector", "VECTOR_COMMANDS", rows=8, columns=2, post_lanes=2
    ),
    # Words of two groups, of which four hold one: they are gathered from two words.
    "vector fp8": _engine(VectorEngine, "vector", "VECTOR_COMMANDS", operand_format="fp8_e5m2"),
    "loss": _engine(LossEngine, "loss", "LOSS_BATCHES"),
}
