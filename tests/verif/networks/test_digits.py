"""The digits on the RTL, the scoreboard that watches it, the waveforms, the command line.

Covers: verif/networks/scoreboard.py, verif/performance/bench.py, verif/tables.py.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from emulator.interpreter import interpret
from hw.config import make_config
from verif import __main__ as command_line
from verif.networks.digits import digits_workload, run_digits
from verif.networks.execute import execute
from verif.networks.scoreboard import compare
from verif.performance.bench import metrics
from verif.regression import CASES
from verif.system.record import BASE
from verif.tables import both_busy_cycles


@pytest.fixture(scope="module")
def config():
    """The same build as in the tests of the accelerator."""
    return make_config(variant="max", preset="tiny")


def test_digits_on_two_cores(config, seed):
    result = run_digits(config, images=12, seed=seed)
    assert result.execution.passed, result.execution.report()
    assert sum(result.execution.comparisons[0].checked) == 12 * (64 * 8 + 16 * 12 + 4 * 16 + 12)
    assert result.rtl_accuracy == result.golden_accuracy
    assert result.rtl_accuracy >= 10 / 12
    # The pipeline has the first layers on one core and the last ones on the other.
    stages = result.execution.workload.program.stages
    assert {run["core"] for stage in stages for run in stage.runs} == {0, 1}
    record = result.execution.outcomes[0].record
    assert 0 < both_busy_cycles(record.counters) < record.counters["CYCLES"]
    assert record.both_cores > 1000


def test_a_residual_network_in_the_functional_model(seed):
    """Every map, and the flags."""
    config = make_config(variant="baseline", preset="tiny", rows=5, columns=3)
    workload = digits_workload(config, images=3, seed=seed, residual=True)
    memory = bytearray(workload.image)
    result = interpret(config, workload.program.commands, memory, seed=seed)
    for stage, tensor, codes in zip(
        workload.program.stages, workload.program.outputs, workload.expected, strict=True
    ):
        np.testing.assert_array_equal(tensor.unpack(memory), codes, err_msg=stage.name)
    assert result.flags == workload.flags


@pytest.mark.long
def test_a_residual_network(seed):
    config = make_config(variant="baseline", preset="tiny")
    result = run_digits(config, images=12, seed=seed, residual=True, stall_share=0.2)
    assert result.execution.passed, result.execution.report()
    assert result.rtl_accuracy == result.golden_accuracy >= 10 / 12


def test_digits_with_stalls(config, seed):
    result = run_digits(config, images=2, seed=seed, stall_share=0.4, latency=30, repeat=1)
    assert result.execution.passed, result.execution.report()


def test_scoreboard_finds_a_wrong_weight(config, seed):
    """One bit of one weight of one output channel, in the RTL's image only."""
    workload = digits_workload(config, images=2, seed=seed)
    stage, channel = 2, 7
    core = config.cores[workload.program.stages[stage].runs[0]["core"]]
    output = workload.program.stages[stage].output
    weights = workload.program.tensors[f"{output}.weight"]
    tile, column = divmod(channel, core.columns)
    image = bytearray(workload.image)
    # The sign of the weight of input channel 0 at the kernel's first position.
    image[weights.offset + channel * weights.dtype.itemsize + 1] ^= 0x80
    execution = execute(workload, seed=seed, repeat=1, image=bytes(image))
    comparison = execution.comparisons[0]
    assert not execution.passed and not comparison.stray
    assert comparison.wrong[:2] == [0, 0] and comparison.wrong[2] > 0
    first = comparison.first
    assert first.stage == "stage2" and first.position[3] == channel
    assert (first.column_tile, first.column, first.row) == (tile, column, channel % core.rows)
    assert first.core == core.index and first.command is not None
    assert 0 < first.cycle < execution.counters["CYCLES"]
    assert first.expected != first.actual
    report = execution.report()
    for part in ("layer", "tile", "row", "column", "cycle", "expected    0x", "actual      0x"):
        assert part in report
    tensor = workload.program.outputs[stage]
    after = tensor.unpack(execution.outcomes[0].memory)
    wrong = np.argwhere(after != workload.expected[stage])
    assert tuple(int(i) for i in wrong[0]) == first.position
    assert {int(place[3]) for place in wrong} == {channel}


def test_scoreboard_finds_stray_writes_and_missing_ones(config, seed):
    workload = digits_workload(config, images=1, seed=seed)
    program = workload.program
    execution = execute(workload, seed=seed, repeat=1)
    assert execution.passed, execution.report()
    outcome = execution.outcomes[0]
    memory = bytearray(outcome.memory)
    memory[program.input.offset] ^= 1
    stray = compare(workload, replace(outcome, memory=bytes(memory)), base=BASE)
    assert not stray.passed and stray.stray == [BASE + program.input.offset]
    assert "outside the outputs" in stray.report()

    first = program.outputs[0]
    memory = bytearray(outcome.memory)
    memory[first.offset : first.offset + 2] = b"\xa5\xa5"
    written = outcome.written.copy()
    written[first.offset // config.beat_bytes] = 0
    missing = compare(workload, replace(outcome, memory=bytes(memory), written=written), base=BASE)
    assert missing.wrong[0] == 1 and missing.first.cycle is None
    assert missing.first.position == (0, 0, 0, 0) and missing.first.actual == 0xA5A5
    assert "never written in this run" in missing.report()


def test_run_prints_accuracy_and_counters(capsys):
    status = command_line.main(["run", "digits", "--variant", "max", "--images", "2"])
    text = capsys.readouterr().out
    assert status == 0
    assert re.search(r"seed 1 .*--seed 1", text)
    for part in ("PASS digits max", "torch float32", "golden", "CORE1_VECTORS", "all passed"):
        assert part in " ".join(text.split()), part


def test_list_names_every_case_in_a_line(capsys):
    assert command_line.main(["run", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    width = max(map(len, CASES)) + 2
    assert lines == [f"{name:{width}}{case.description}" for name, case in CASES.items()]
    assert all(line[width - 2 : width] == "  " for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nothing"], "unknown case nothing; cases are digits"),
        (["run"], "no case named"),
        (["run", "digits", "--images", "0"], "images must be from 1 to 360, not 0"),
        (["run", "digits", "--preset", "huge"], "preset must be one of tiny"),
        (["run", "digits", "--set", "rows=0"], "rows must be an integer from 1 to 256, not 0"),
        (["bench", "--set", "colour=red"], "colour"),
    ],
)
def test_bad_arguments_give_one_message(arguments, message, capsys):
    assert command_line.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_bench_metrics():
    counters = {"CYCLES": 1000, "CORE0_VECTORS": 900}
    result = metrics(counters, macs=80_000, pes=100)
    assert result["utilisation"] == 0.8 and result["of_tiling"] == 0.9
    assert result["tiling"] == pytest.approx(80_000 / 90_000)
    assert json.dumps(result)
