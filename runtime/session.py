"""A compiled training program in the memory of an accelerator: batches in, numbers out."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler.adagp.program import AdaGPProgram
from compiler.tensors.tensor import Tensor
from compiler.training import TrainingProgram
from compiler.training.compile import COEFFICIENTS
from emulator.batch_loop import PHASES, BatchLoop
from golden.prediction.schedule import Phase, ScheduleConfig
from hw.isa.batch import EPOCH_BATCH_WIDTH, PhaseCode
from hw.registers import host

from .connection import Connection, Interrupt
from .state import State

__all__ = ["BackpropagationSession", "BatchResult", "PredictionSession", "Session"]

#: Images and targets of a batch.
Pair = tuple[np.ndarray, Any]

#: So many batches, or batches of an epoch, never come: the host ends a run when it has to.
_ENDLESS = (1 << EPOCH_BATCH_WIDTH) - 1


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """What came of one batch.

    Members
    -------
    loss, correct : as the accelerator computed them; None where it computes none
    phase : :class:`golden.prediction.schedule.Phase`
    counters : what the batch has added to them, CYCLES without those of waiting for the host; empty
        where the device counts nothing
    rejected : tiles that the guard left as they were
    """

    loss: float | None
    correct: int | None
    phase: Phase
    counters: dict[str, int]
    rejected: int


class Session(ABC):
    """A program for batches of one size, its window, and what the host does for a batch.

    Parameters
    ----------
    accelerator : Connection
    program : of ``config``
    guard : whether updates with gradients that are not finite are left out

    Members
    -------
    program : as given
    sample_seed : of the random numbers of the next batch
    """

    program: Any
    sample_seed: int

    def __init__(
        self, accelerator: Connection, program: TrainingProgram | AdaGPProgram, *, guard: bool
    ) -> None:
        first = program.loop if isinstance(program, AdaGPProgram) else program
        accelerator.require(first.config)
        self.accelerator, self.guard, self.sample_seed = accelerator, guard, 0
        self.window = accelerator.window(program.memory_size)

    def close(self) -> None:
        """Give the window back."""
        self.accelerator.free(self.window)

    @abstractmethod
    def load(self, state: State) -> None:
        """Write program and state into the memory."""

    @abstractmethod
    def state(self) -> State:
        """Read what has been learned."""

    @abstractmethod
    def step(
        self,
        images: np.ndarray,
        targets: np.ndarray,
        coefficients: Mapping[str, float],
        epoch: int,
        batch: int,
        following: Pair | None = None,
    ) -> BatchResult:
        """Train one batch, number ``batch`` of epoch ``epoch``, both from 0.

        ``coefficients`` maps names of :data:`compiler.training.compile.COEFFICIENTS` to numbers.
        ``following`` is the (images, targets) of the next batch, which is written while this one is
        computed where the program has a second place for it; the next step takes it to be there if
        it is given the very same arrays.
        Errors as :meth:`compiler.training.TrainingProgram.batch` and
        :meth:`~runtime.connection.Connection.wait`.
        """

    def _registers(self, coefficients):
        bits = np.zeros(len(COEFFICIENTS), np.float32)
        for name, number in coefficients.items():
            bits[COEFFICIENTS.index(name)] = number
        values = {f"COEFFICIENT{n}": int(code) for n, code in enumerate(bits.view(np.uint32))}
        return values | {"GUARD": int(self.guard), "SAMPLE_SEED": self.sample_seed & 0xFFFFFFFF}

    def _head(self, tensors: list[Tensor]) -> bytes:
        """The memory window as far as ``tensors`` reach: those that last are at its beginning."""
        end = max(tensor.offset + tensor.size for tensor in tensors)
        return self.accelerator.get(self.window, 0, end)

    def _loss(self, program):
        """Value and correct answers of the last batch, without the rest of the memory."""
        data, placed = b"", {}
        for output in program.outputs:
            for name in filter(None, (output.value, output.labels.get("products"))):
                tensor = program.tensors[name]
                placed[name] = replace(tensor, offset=len(data))
                data += self.accelerator.get(self.window, tensor.offset, tensor.size)
        value, correct = replace(program, tensors=program.tensors | placed).loss_of(data)
        judged = any(output.loss.kind == "cross_entropy" for output in program.outputs)
        return value, correct if judged else None

    def _rejected(self, values):
        names = [f"CORE{core.index}_VECTOR_REJECTED" for core in self.accelerator.config.cores]
        return sum(values.get(name, 0) for name in names)


class BackpropagationSession(Session):
    """Every batch is a run of a :class:`compiler.training.TrainingProgram`."""

    def __init__(
        self, accelerator: Connection, program: TrainingProgram, *, guard: bool = True
    ) -> None:
        super().__init__(accelerator, program, guard=guard)
        self.program = program

    def load(self, state):
        self.accelerator.put(self.window, 0, self.program.memory(state.weights, state.slots))

    def state(self):
        return _state(self.program, self._head(_kept(self.program)))

    def step(self, images, targets, coefficients, epoch, batch, following=None):
        program = self.program
        for offset, data in program.batch(images, targets):
            self.accelerator.put(self.window, offset, data)
        interrupt = self.accelerator.run(
            self.window,
            program=program.program,
            program_size=len(program.commands),
            registers=self._registers(coefficients),
        )
        loss, correct = self._loss(program)
        return BatchResult(
            loss=loss,
            correct=correct,
            phase=Phase.BP,
            counters=interrupt.counters,
            rejected=self._rejected(interrupt.counters or interrupt.registers),
        )


class PredictionSession(Session):
    """Batches are those of a run of a :class:`compiler.adagp.AdaGPProgram`, which goes on as long
    as the coefficients do not change; the accelerator itself chooses their phases.

    Parameters
    ----------
    schedule : of the registers: at most four stages
    """

    def __init__(
        self,
        accelerator: Connection,
        program: AdaGPProgram,
        *,
        schedule: ScheduleConfig,
        guard: bool = True,
    ) -> None:
        super().__init__(accelerator, program, guard=guard)
        self.program, self._schedule = program, schedule
        self._running: Any = None
        self._supplied: Pair | None = None
        self._done = 0
        self._counted: dict[str, int] = {}

    def load(self, state):
        memory = self.program.memory(state.weights, state.slots, state.predictor)
        self.accelerator.put(self.window, 0, memory)

    def state(self):
        if self._running is not None:
            self.accelerator.let_go()
        program = self.program
        tensors = [program.loop.tensors[name] for name in program.predictor.kept]
        memory = self._head([*_kept(program.loop), *tensors])
        state = _state(program.loop, memory)
        state.predictor = program.predictor_state(memory)
        return state

    def gates(self) -> dict[str, float]:
        """How far the prediction of each layer is trusted, from 0 to 1."""
        program = self.program
        tensors = [program.loop.tensors[name] for name in program.predictor.kept]
        return program.gates(self._head(tensors))

    def step(self, images, targets, coefficients, epoch, batch, following=None):
        wanted = (epoch, dict(coefficients))
        if self._running != wanted:
            self.accelerator.let_go()
        program, accelerator = self.program, self.accelerator
        there = self._supplied
        if there is None or there[0] is not images or there[1] is not targets:
            self._supply(self._done, images, targets)
        accelerator.device.write("BATCHES_READY", self._done + 1)
        if self._running is None:
            loop = BatchLoop(
                schedule=self._schedule, batches=_ENDLESS, epoch_batches=_ENDLESS, epoch=epoch,
                epoch_batch=batch,
            )  # fmt: skip
            accelerator.start(
                self.window,
                program=program.loop.program,
                program_size=len(program.loop.commands),
                registers=self._registers(coefficients) | loop.registers(),
            )
            accelerator.hold(self._end_run)
            self._running, self._counted = wanted, {}
        self._supplied = None
        if following is not None:
            # What is wrong with it is said when it is its turn.
            with contextlib.suppress(ValueError):
                self._supply(self._done + 1, *following)
                self._supplied = following
        interrupt = accelerator.wait()
        self._done += 1
        phase = PHASES[PhaseCode(interrupt.registers["PHASE"])]
        known = phase.backpropagates or program.head is not None
        loss, correct = self._loss(program.loop) if known else (None, None)
        counters, rejected = self._added(interrupt)
        return BatchResult(
            loss=loss, correct=correct, phase=phase, counters=counters, rejected=rejected
        )

    def _supply(self, number: int, images: np.ndarray, targets: Any) -> None:
        """Write the inputs of a batch of this run: even ones and odd ones have their own place."""
        for offset, data in self.program.batch(images, targets, number):
            self.accelerator.put(self.window, offset, data)

    def _end_run(self) -> None:
        self.accelerator.device.write("BATCHES", self._done)
        while not self.accelerator.wait().ended:
            pass
        self._running, self._done, self._supplied = None, 0, None

    def _added(self, interrupt: Interrupt) -> tuple[dict[str, int], int]:
        """Counters of the last batch, and tiles that its guards left out."""
        now = interrupt.counters and host.without_waiting(interrupt.counters)
        values = now or interrupt.registers
        total, before = self._rejected(values), self._rejected(self._counted)
        added = {name: value - self._counted.get(name, 0) for name, value in now.items()}
        self._counted = values
        return added, total - before


def _kept(program):
    """Tensors of a program that outlive a batch."""
    return [
        tensor
        for parameter in program.parameters.values()
        for role, tensor in parameter.tensors.items()
        if role != "gradient"
    ]


def _state(program, memory):
    roles = {role for p in program.parameters.values() for role in p.tensors}
    slots = roles - {"master", "operands", "gradient", "mask"}
    return State(
        weights=program.state(memory),
        slots={role: program.state(memory, role) for role in sorted(slots)},
    )
