"""Where the cycles of a batch go: by layer and phase, as Figure 16 of the paper shows them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compiler.adagp.program import AdaGPProgram
from compiler.networks.summary import layer_of, phase_of
from compiler.training.program import TrainingProgram

from .events.model import run_events
from .events.work import Works
from .model import Result, run

__all__ = ["BEHIND", "BatchCycles", "batches_of", "step_ends", "time_batch"]

#: What is not part of a layer: from the end of the last one to the interrupt.
BEHIND = "(behind)"


@dataclass(frozen=True, kw_only=True)
class BatchCycles:
    """A batch on the model.

    Members
    -------
    result : of the whole program
    layers : layer -> phase -> cycles by which its steps put off the end of what came before. They
        sum up to the batch, with those of :data:`BEHIND`. Where the predictor works beside the
        network (in ``efficient`` and ``max``) only the network's steps are on this clock
    """

    result: Result
    layers: dict[str, dict[str, int]]


def batches_of(program: TrainingProgram | AdaGPProgram) -> Mapping[str, TrainingProgram]:
    """The batches of a program by name: "bp" and, with predictions, "gp"."""
    if isinstance(program, AdaGPProgram):
        return program.parts
    return {"bp": program}


def step_ends(program: TrainingProgram, result: Result) -> list[int]:
    """For each step the cycle in which the last of its commands was over."""
    return [max((result.ends[place] for place in step.places), default=0) for step in program.steps]


def time_batch(
    program: TrainingProgram, *, latency: int, exact: bool = True, compiled: bool = True,
    lists: Iterable[Sequence[bool]] = (), works: Works | None = None,
) -> BatchCycles:  # fmt: skip
    """Run a batch on the model; ``latency``: cycles that memory adds to every burst; ``works``: on
    the model of events (:func:`~perf.machine.events.model.run_events`), with their latency; the
    others as for :func:`~perf.machine.model.run`."""
    if works is not None:
        result = run_events(program.commands, program.config, offset=program.program, works=works)
    else:
        result = run(
            program.commands, program.config, offset=program.program, latency=latency,
            exact=exact, compiled=compiled, lists=lists,
        )  # fmt: skip
    names = {layer.name for layer in program.layers}
    names |= {output.value for output in program.outputs}
    # In the order of the network: a step may be written before those that it does not wait for.
    layers: dict[str, dict[str, int]] = {layer.name: {} for layer in program.layers}
    alone = not program.config.has_predictor_memory
    before = 0
    for step, end in zip(program.steps, step_ends(program, result), strict=True):
        if not alone and (step.background or step.predictor):
            continue
        phases = layers.setdefault(layer_of(step, names), {})
        end = max(before, end)
        phases[phase_of(step)] = phases.get(phase_of(step), 0) + end - before
        before = end
    layers = {name: phases for name, phases in layers.items() if phases}
    layers[BEHIND] = {"": result.cycles - before}
    return BatchCycles(result=result, layers=layers)
