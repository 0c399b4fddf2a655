"""Runs of many batches on the whole accelerator; see verif/system/cocotb_batches.py.

Covers: verif/system/cocotb_batches.py, verif/programs/faulty_batches.py.
"""

import json

import pytest

from hw.config import make_config
from verif.sim import runner
from verif.system import accelerator


@pytest.mark.parametrize(
    "testcase",
    [
        "host_lowers_the_number",
        "registers_during_a_run",
        "without_waiting",
        "errors_in_a_batch",
        "overflow_at_the_end_of_a_batch",
        "stop_while_waiting",
        "reset_while_waiting",
        "one_request_at_a_time",
    ],
)
def test_bench(testcase, seed):
    config = make_config(variant="max", preset="tiny")
    result = runner.run(
        accelerator.build(config).design,
        "verif.system.cocotb_batches",
        testcase=testcase,
        seed=seed,
        files={"batches.json": json.dumps(config.as_dict())},
    )
    assert result.passed
