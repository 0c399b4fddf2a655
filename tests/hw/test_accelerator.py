"""The whole accelerator: networks, faulty programs, resets, bus models; on one build.

Covers: hw/control/core.py, verif/system/cocotb_bus.py, verif/system/cocotb_errors.py,
verif/system/cocotb_stop.py, verif/system/harness.py, verif/system/driver.py,
verif/programs/faulty_programs.py, verif/programs/faulty_addresses.py,
verif/programs/faulty_loops.py,
verif/programs/endless_programs.py.
"""

import pytest

from golden.arithmetic.dot_product import Flags
from hw.config import make_config
from verif.networks.execute import execute, good_program
from verif.networks.workload import small_workload
from verif.regression import special_workload
from verif.sim import runner
from verif.system import accelerator


@pytest.fixture(scope="module")
def config():
    """Two cores; all other tests of the accelerator's ``max`` variant use the same build."""
    return make_config(variant="max", preset="tiny")


@pytest.fixture(scope="module")
def good(config, request):
    seed = request.config.getoption("seed")
    workload = small_workload(config, seed)
    execution = execute(workload, seed=seed)
    assert execution.passed, execution.report()
    assert execution.outcomes[0].record.both_cores, "the cores never worked at the same time"
    first, second = (outcome.record.counters for outcome in execution.outcomes)
    assert first == second, "the second run's counters differ from the first's"
    return good_program(workload, execution.counters["CYCLES"])


@pytest.mark.parametrize(
    ("bench", "testcase"),
    [
        ("errors", "faulty_programs"),
        ("errors", "faults_on_a_slow_memory"),
        ("errors", "broken_in_the_middle"),
        ("errors", "reset_at_any_time"),
        ("errors", "independent_bus_models"),
        ("stop", "endless_programs_are_stopped"),
        ("stop", "endless_loops_of_commands_are_stopped"),
        ("stop", "endless_programs_and_the_watchdog"),
        ("stop", "the_watchdog_names_who_is_slow"),
        ("stop", "stopped_anywhere"),
        ("stop", "silent_memory_and_stop"),
        ("stop", "silent_memory_and_watchdog"),
        ("stop", "a_good_program_under_the_watchdog"),
    ],
)
def test_bench(config, good, bench, testcase, seed):
    result = runner.run(
        accelerator.build(config).design,
        f"verif.system.cocotb_{bench}",
        testcase=testcase,
        seed=seed,
        files=good,
    )
    assert result.passed


@pytest.mark.parametrize(
    "testcase",
    ["reset_without_the_memory", "answers_that_nobody_waits_for", "end_of_the_address_space"],
)
def test_bus(config, good, testcase, seed):
    result = runner.run(
        accelerator.build(config).design,
        "verif.system.cocotb_bus",
        testcase=testcase,
        seed=seed,
        files=good,
    )
    assert result.passed


def test_special_values(config, seed):
    seen = 0
    for number in range(4):
        workload = special_workload(config, 10 * seed + number)
        execution = execute(workload, seed=seed)
        assert execution.passed, execution.report()
        for outcome in execution.outcomes:
            flags = 0
            for core in outcome.record.flags:
                flags |= sum(core[flag.name] * flag for flag in Flags)
            assert flags == workload.flags, f"flags {flags:#x}, expected {workload.flags:#x}"
        seen |= workload.flags
    assert seen == Flags.INVALID | Flags.OVERFLOW | Flags.UNDERFLOW | Flags.INEXACT


def test_counters_add_up(config, seed):
    """The array is never in two states at once, and what is counted twice agrees."""
    execution = execute(small_workload(config, seed), seed=seed, stall_share=0.3, latency=20)
    assert execution.passed, execution.report()
    counters = execution.counters
    for core in (0, 1):
        n = f"CORE{core}_"
        stalls = ("STALL_WEIGHTS", "STALL_BUFFER", "STALL_HAZARD", "STALL_COMMAND")
        states = counters[n + "VECTORS"] + sum(counters[n + stall] for stall in stalls)
        assert states == counters["CYCLES"], f"core {core}: {states} of {counters['CYCLES']}"
    assert counters["COMMANDS"] == len(execution.workload.program.command_list)
    assert counters["READ_BYTES"] == counters["READ_BEATS"] * config.beat_bytes
    assert counters["READ_STALL"] > 0 and counters["WRITE_STALL"] > 0
    vectors = sum(stage.vector_cycles for stage in execution.workload.program.stages)
    assert counters["CORE0_VECTORS"] + counters["CORE1_VECTORS"] == vectors
    assert execution.outcomes[0].record.cycles == pytest.approx(counters["CYCLES"], abs=4)
