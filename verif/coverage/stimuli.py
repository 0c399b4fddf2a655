"""What is simulated for coverage: the checked runs of the regression, on small configurations.

Every stimulus compares what it computes with a reference, as in the regression; one that is wrong
raises, and the campaign fails.
"""

import enum
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from emulator.interpreter import interpret
from hw.config import make_config
from verif.fuzz.generate import Generator
from verif.fuzz.good import good_programs
from verif.fuzz.harness import Finding, Harness
from verif.fuzz.harness import build as build_fuzz
from verif.networks.adagp_blocks import predicted_run
from verif.networks.execute import execute, good_program
from verif.networks.random_networks import random_network
from verif.networks.train_blocks import BLOCKS, block_run
from verif.networks.workload import prepare, small_workload
from verif.programs.engine_programs import (
    busy_program,
    loss_program,
    product_program,
    vector_program,
)
from verif.programs.far_addresses import far_address_faults
from verif.programs.faulty_programs import PROGRAM, WINDOW
from verif.programs.layer_cases import CASES as LAYERS
from verif.programs.loop_programs import loop_program
from verif.programs.repeat_programs import repeat_program
from verif.programs.semaphore_programs import counting_program, overflow_faults
from verif.regression import special_workload
from verif.sim import runner
from verif.system import accelerator
from verif.system.record import BASE

from .block_stimuli import BLOCKS as BENCHES
from .configs import CONFIGS
from .schedules import check_schedules, compare_memory, schedule_runs

__all__ = ["Stimulus", "block_stimuli", "stimuli"]

#: The configuration with most of the stimuli: what they reach of lines and toggles counts for all,
#: and functional points of the others need less.
MOST = "baseline"


class Depth(enum.Enum):
    """How much is simulated of a configuration."""

    QUICK = enum.auto()
    SOME = enum.auto()
    MOST = enum.auto()


#: Tests of verif/system/cocotb_*.py; None: all of them.
_FAULTS = {
    Depth.QUICK: {"errors": ["faulty_programs"]},
    Depth.SOME: {
        "errors": ["faults_on_a_slow_memory"],
        "stop": [
            "endless_programs_and_the_watchdog",
            "the_watchdog_names_who_is_slow",
            "silent_memory_and_watchdog",
        ],
        "bus": ["answers_that_nobody_waits_for"],
    },
    Depth.MOST: {"errors": None, "stop": None, "bus": None},
}
#: Cases of the fuzzer, and good programs on unfair slaves behind them.
_FUZZ_CASES = {Depth.SOME: (400, 40), Depth.MOST: (2000, 200)}


@dataclass(frozen=True, kw_only=True)
class Stimulus:
    """Something to simulate: ``run`` raises when a result is wrong."""

    name: str
    run: Callable[[], None]


def stimuli(name: str, seed: int, *, quick: bool = False) -> Iterator[Stimulus]:
    """All stimuli of a configuration of :data:`CONFIGS`, most of them on :data:`MOST`; ``quick``:
    the most fruitful ones."""
    config = make_config(preset="tiny", **CONFIGS[name])
    depth = Depth.QUICK if quick else Depth.MOST if name == MOST else Depth.SOME
    groups: list[tuple[str, Callable]] = [
        ("engines", _engines), ("networks", _networks), ("faults", _faults), ("batches", _batches),
    ]  # fmt: skip
    if depth is not Depth.QUICK:
        groups += [("loops of commands", _repeats), ("semaphores", _semaphores)]
        groups += [("ADA-GP", _adagp), ("fuzz", _fuzz), ("far addresses", _far)]
    if depth is Depth.MOST:
        groups += [("layers", _layers), ("training", _training), ("special values", _special)]
    for title, run in groups:
        yield Stimulus(name=f"{name}: {title}", run=functools.partial(run, config, seed, depth))


def block_stimuli(seed: int) -> Iterator[Stimulus]:
    """The benches of single blocks."""
    for name, run in BENCHES.items():
        yield Stimulus(name=f"block: {name}", run=functools.partial(run, seed))


def _run(config, runs, seed, **options):
    """Outcomes of programs one after the other on one simulator; all end well."""
    simulator = accelerator.build(config, memory_bytes=BASE + max(len(r.image) for r in runs))
    outcomes, _ = accelerator.run(simulator, runs, seed=seed, timeout_cycles=600_000, **options)
    for number, outcome in enumerate(outcomes):
        record = outcome.record
        if record.error or not record.done:
            raise AssertionError(f"program {number} ended with {record.code} of {record.unit}")
    return outcomes


def _passed(what, passed, report):
    if not passed:
        raise AssertionError(f"{what}: {report}")


def _engines(config, seed, depth):
    programs = [loss_program(config, seed + n) for n in range(4)]
    for core in config.cores:
        loops = {Depth.QUICK: 1, Depth.SOME: 3, Depth.MOST: 6}[depth]
        programs += [loop_program(config, core.index, seed + n) for n in range(loops)]
        programs.append(loop_program(config, core.index, seed, special=True))
        programs += [make(config, core.index, seed) for make in (product_program, busy_program)]
        for guard in (False, True):
            programs.append(vector_program(config, core.index, seed, guard=guard))
    runs, wanted = [], []
    for program in programs:
        runs.append(
            accelerator.Run(
                image=program.image, program_size=len(program.program), registers=program.registers
            )
        )
        memory = bytearray(program.image)
        interpret(
            config, program.program, memory, seed=seed, coefficients=program.coefficients,
            sample_seed=program.sample_seed, guard=program.guard,
        )  # fmt: skip
        wanted.append(bytes(memory))
    for memory in ({}, {"stall_share": 0.3, "latency": 20})[: 1 if depth is Depth.QUICK else 2]:
        outcomes = _run(config, runs, seed, **memory)
        for program, outcome, expected in zip(programs, outcomes, wanted, strict=True):
            program.compare(outcome.memory, expected)


def _repeats(config, seed, depth):
    """Loops of commands: every level, and addresses that move both ways on each of them."""
    programs = [
        repeat_program(config, core.index, seed + number) for core in config.cores
        for number in range(6)
    ]  # fmt: skip
    runs = [accelerator.Run.of(program) for program in programs]
    outcomes = _run(config, runs, seed, stall_share=0.1, latency=20)
    for program, outcome in zip(programs, outcomes, strict=True):
        memory = bytearray(program.image)
        interpret(config, b"".join(program.written_out), memory, seed=seed)
        compare_memory(program.name, outcome.memory, memory)


def _semaphores(config, seed, depth):
    """Every semaphore at its maximum, and one too many."""
    _run(config, [_bare(counting_program(config))], seed)
    _refused(config, seed, overflow_faults(config))


def _far(config, seed, depth):
    """Addresses far beyond the memories."""
    _refused(config, seed, far_address_faults(config))


def _bare(commands):
    """A program alone in its window."""
    image = bytearray(WINDOW)
    program = b"".join(commands)
    image[PROGRAM : PROGRAM + len(program)] = program
    return accelerator.Run(image=bytes(image), program=PROGRAM, program_size=len(program))


def _refused(config, seed, faults):
    """Each faulty program ends with its error."""
    runs = [_bare(fault.commands) for fault in faults]
    outcomes, _ = accelerator.run(accelerator.build(config), runs, seed=seed, timeout_cycles=9999)
    for fault, outcome in zip(faults, outcomes, strict=True):
        record = outcome.record
        actual = record.code, record.unit, record.address
        expected = fault.code.name, fault.unit.name, fault.address
        if actual != expected:
            raise AssertionError(f"{fault.name}: {actual}, not {expected}")


def _faults(config, seed, depth):
    """Faulty programs, resets, stops, other bus models, and what a bus may do."""
    workload = small_workload(config, seed)
    execution = execute(workload, seed=seed, repeat=1)
    _passed(workload.name, execution.passed, execution.report())
    design = accelerator.build(config).design
    files = good_program(workload, execution.counters["CYCLES"])
    for module, tests in _FAULTS[depth].items():
        runner.run(design, f"verif.system.cocotb_{module}", testcase=tests, seed=seed, files=files)


def _batches(config, seed, depth):
    runner.run(
        accelerator.build(config).design,
        "verif.system.cocotb_batches",
        testcase=None if depth is Depth.MOST else ["registers_during_a_run", "without_waiting"],
        seed=seed,
        files={"batches.json": json.dumps(config.as_dict())},
    )
    runs = schedule_runs(config)
    check_schedules(config, runs, _run(config, runs, seed))


def _networks(config, seed, depth):
    for number in range(6 if depth is Depth.MOST else 2):
        model, shape = random_network(seed * 1000 + number)
        n, c, h, w = shape
        images = np.random.default_rng(seed).standard_normal((n, h, w, c)).astype(np.float32)
        workload = prepare(f"network {number}", model, config, images)
        memory = {"stall_share": 0.12 * number, "latency": 10 * number}
        execution = execute(workload, seed=seed, repeat=1, **memory)
        _passed(workload.name, execution.passed, execution.report())


def _layers(config, seed, depth):
    rng = np.random.default_rng(seed)
    for shape in ((2, 4, 5, 7), (3, 5, 3, 2)):
        cases = {name: make(rng, config, shape) for name, make in LAYERS.items()}
        runs = [
            accelerator.Run(
                image=case.image, program_size=len(case.program), registers=case.registers
            )
            for case in cases.values()
        ]
        outcomes = _run(config, runs, seed, stall_share=0.2, latency=10)
        for (name, case), outcome in zip(cases.items(), outcomes, strict=True):
            case.check(outcome.memory, name)


def _training(config, seed, depth):
    for name in BLOCKS:
        rng = np.random.default_rng([seed, 0xB10C])
        result = block_run(name, config, rng, batches=1).simulate(seed=seed)
        _passed(f"training {name}", result.passed, result.differences[:3])


def _adagp(config, seed, depth):
    for network in ("ragged", "residual")[: 2 if depth is Depth.MOST else 1]:
        rng = np.random.default_rng([seed, 0xADA])
        result = predicted_run(network, config, rng, "GB").simulate(seed=seed)
        _passed(f"ADA-GP {network}", result.passed, result.differences[:3])


def _special(config, seed, depth):
    workload = special_workload(config, seed)
    execution = execute(workload, seed=seed, repeat=1)
    _passed(workload.name, execution.passed, execution.report())


def _fuzz(config, seed, depth):
    """Random programs, registers and windows on random slaves."""
    goods = good_programs(config, seed)
    program = build_fuzz(config, goods)
    for adversarial, count in zip((False, True), _FUZZ_CASES[depth], strict=True):
        generator = Generator(config, goods, seed=seed, adversarial=adversarial)
        cases = (generator.case(number, fresh=number == 0) for number in range(count))
        with Harness(program) as harness:
            for number, result in enumerate(harness.run(cases)):
                if isinstance(result, Finding):
                    raise AssertionError(f"fuzz case {number}: {result.kind}: {result.text}")
