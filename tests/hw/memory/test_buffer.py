"""The on-chip operand memory against its model, for every kind of core.

Covers: verif/blocks/memory/cocotb_buffer.py.
"""

import json

import pytest

from hw.config import make_config
from hw.memory.buffer import Buffer
from hw.primitives.shared_module import emit_verilog
from verif.blocks.memory.cocotb_buffer import CHANNELS_VARIABLE
from verif.blocks.support import CONFIG_VARIABLE
from verif.sim import runner

SIZES = {
    "buffer_banks": 3,
    "buffer_bank_depth": 16,
    "predictor_memory_banks": 2,
    "predictor_memory_bank_depth": 32,
    "rows": 6,
    "columns": 4,
    "predictor_rows": 3,
    "predictor_columns": 5,
}


@pytest.mark.parametrize(
    ("variant", "core_index", "readers", "writers"),
    [
        ("baseline", 0, (0, 1, 0), (0, 0)),
        ("baseline", 0, (0, 1, 2), (1, 0)),
        ("efficient", 0, (0, 1, 1, 0), (0, 1, 0)),
        ("efficient", 0, (0, 1, 0, 2, 3, 4, 2), (0, 0, 0, 0)),
        ("max", 1, (0, 1), (0,)),
    ],
)
def test_random_traffic(variant, core_index, readers, writers, seed):
    config = make_config(variant=variant, preset="tiny", **SIZES)
    buffer = Buffer(config, config.cores[core_index], readers=readers, writers=writers)
    result = run(emit_verilog(buffer, name="buffer"), buffer, config, core_index, seed)
    assert len(result.tests) == 4


def test_a_wrong_memory_is_found(seed):
    config = make_config(variant="baseline", preset="tiny", **SIZES)
    buffer = Buffer(config, config.cores[0], readers=(0, 1, 0), writers=(0, 0))
    text = emit_verilog(buffer, name="buffer")
    assert "if (write_en[1])" in text
    with pytest.raises(runner.SimulationFailed, match=r"read port \d+, word 0x.* expected 0x"):
        run(text.replace("if (write_en[1])", "if (write_en[0])"), buffer, config, 0, seed)


def run(text, buffer, config, core_index, seed):
    channels = {"readers": buffer.readers, "writers": buffer.writers}
    return runner.run(
        runner.build(text, toplevel="buffer"),
        "verif.blocks.memory.cocotb_buffer",
        seed=seed,
        extra_env={
            CONFIG_VARIABLE: json.dumps(config.as_dict()),
            CHANNELS_VARIABLE: json.dumps(channels),
            "ADAGP_CORE": core_index,
        },
    )
