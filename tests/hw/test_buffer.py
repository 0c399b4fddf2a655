"""The on-chip operand memory against its model, for every kind of core."""

import json

import pytest

from hw.buffer import Buffer
from hw.config import make_config
from hw.shared import emit_verilog
from verif import runner
from verif.cocotb_support import CONFIG_VARIABLE

SIZES = {
    "buffer_banks": 3,
    "buffer_bank_depth": 16,
    "predictor_memory_depth": 21,
    "rows": 6,
    "columns": 4,
    "predictor_rows": 3,
    "predictor_columns": 5,
}


@pytest.mark.parametrize(
    ("variant", "core_index", "readers", "writers"),
    [("baseline", 0, 3, 2), ("efficient", 0, 3, 2), ("max", 1, 2, 1)],
)
def test_random_traffic(variant, core_index, readers, writers, seed):
    config = make_config(variant=variant, preset="tiny", **SIZES)
    buffer = Buffer(config, config.cores[core_index], readers=readers, writers=writers)
    result = run(emit_verilog(buffer, name="buffer"), config, core_index, seed)
    assert len(result.tests) == 4


def test_a_wrong_memory_is_found(seed):
    config = make_config(variant="baseline", preset="tiny", **SIZES)
    text = emit_verilog(Buffer(config, config.cores[0], readers=3, writers=2), name="buffer")
    assert "if (write_en[1])" in text
    with pytest.raises(runner.SimulationFailed, match=r"read port \d+, word 0x.* expected 0x"):
        run(text.replace("if (write_en[1])", "if (write_en[0])"), config, 0, seed)


def run(text, config, core_index, seed):
    return runner.run(
        runner.build(text, toplevel="buffer"),
        "verif.cocotb_buffer",
        seed=seed,
        extra_env={CONFIG_VARIABLE: json.dumps(config.as_dict()), "ADAGP_CORE": core_index},
    )
