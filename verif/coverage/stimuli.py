"""What is simulated for coverage: the checked runs of the regression, on small configurations.

Every stimulus compares what it computes with a reference, as in the regression; one that is wrong
raises, and the campaign fails.
"""

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from emulator.interpreter import interpret
from hw.config import make_config
from verif.networks.adagp_blocks import predicted_run
from verif.networks.execute import execute, good_program
from verif.networks.random_networks import random_network
from verif.networks.train_blocks import BLOCKS, block_run
from verif.networks.workload import prepare, small_workload
from verif.programs.engine_programs import loss_program, product_program, vector_program
from verif.programs.layer_cases import CASES as LAYERS
from verif.programs.loop_programs import loop_program
from verif.regression import special_workload
from verif.sim import runner
from verif.system import accelerator
from verif.system.record import BASE

from .block_stimuli import BLOCKS as BENCHES
from .configs import CONFIGS
from .schedules import check_schedules, schedule_runs

__all__ = ["Stimulus", "block_stimuli", "stimuli"]


@dataclass(frozen=True, kw_only=True)
class Stimulus:
    """Something to simulate: ``run`` raises when a result is wrong."""

    name: str
    run: Callable[[], None]


def stimuli(name: str, seed: int, *, quick: bool = False) -> Iterator[Stimulus]:
    """All stimuli of a configuration of :data:`CONFIGS`; ``quick``: the most fruitful ones."""
    config = make_config(preset="tiny", **CONFIGS[name])
    groups: list[tuple[str, Callable]] = [("networks", _networks), ("faults", _faults)]
    if config.has_training_engines:
        groups = [("engines", _engines), *groups, ("batches", _batches)]
        if not quick:
            groups += [("layers", _layers), ("training", _training), ("ADA-GP", _adagp)]
    if not quick:
        groups += [("special values", _special)]
    for title, run in groups:
        yield Stimulus(
            name=f"{name}: {title}", run=functools.partial(run, config, seed, quick=quick)
        )


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


def _engines(config, seed, *, quick):
    programs = [loss_program(config, seed)]
    for core in config.cores:
        programs += [loop_program(config, core.index, seed + n) for n in range(1 if quick else 6)]
        programs.append(product_program(config, core.index, seed))
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
            guard=program.guard,
        )  # fmt: skip
        wanted.append(bytes(memory))
    for memory in ({}, {"stall_share": 0.3, "latency": 20})[: 1 if quick else 2]:
        outcomes = _run(config, runs, seed, **memory)
        for program, outcome, expected in zip(programs, outcomes, wanted, strict=True):
            program.compare(outcome.memory, expected)


def _faults(config, seed, *, quick):
    """Faulty programs, resets, stops, other bus models, and what a bus may do."""
    workload = small_workload(config, seed)
    execution = execute(workload, seed=seed, repeat=1)
    _passed(workload.name, execution.passed, execution.report())
    design = accelerator.build(config).design
    files = good_program(workload, execution.counters["CYCLES"])
    for module in ("errors",) if quick else ("errors", "stop", "bus"):
        runner.run(
            design,
            f"verif.system.cocotb_{module}",
            testcase=["faulty_programs"] if quick else None,
            seed=seed,
            files=files,
        )


def _batches(config, seed, *, quick):
    runner.run(
        accelerator.build(config).design,
        "verif.system.cocotb_batches",
        testcase=["registers_during_a_run", "without_waiting"] if quick else None,
        seed=seed,
        files={"batches.json": json.dumps(config.as_dict())},
    )
    runs = schedule_runs(config)
    check_schedules(config, runs, _run(config, runs, seed))


def _networks(config, seed, *, quick):
    for number in range(2 if quick else 6):
        model, shape = random_network(seed * 1000 + number)
        n, c, h, w = shape
        images = np.random.default_rng(seed).standard_normal((n, h, w, c)).astype(np.float32)
        workload = prepare(f"network {number}", model, config, images)
        memory = {"stall_share": 0.12 * number, "latency": 10 * number}
        execution = execute(workload, seed=seed, repeat=1, **memory)
        _passed(workload.name, execution.passed, execution.report())


def _layers(config, seed, *, quick):
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


def _training(config, seed, *, quick):
    for name in BLOCKS:
        rng = np.random.default_rng([seed, 0xB10C])
        result = block_run(name, config, rng, batches=1).simulate(seed=seed)
        _passed(f"training {name}", result.passed, result.differences[:3])


def _adagp(config, seed, *, quick):
    for network in ("ragged", "residual"):
        rng = np.random.default_rng([seed, 0xADA])
        result = predicted_run(network, config, rng, "GB").simulate(seed=seed)
        _passed(f"ADA-GP {network}", result.passed, result.differences[:3])


def _special(config, seed, *, quick):
    workload = special_workload(config, seed)
    execution = execute(workload, seed=seed, repeat=1)
    _passed(workload.name, execution.passed, execution.report())
