"""A network trains on the accelerator, batch after batch, beside golden."""

import copy
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from compiler.training import COEFFICIENTS, TrainingProgram, compile_training
from golden.formats import FLOAT32
from golden.numerics import encode
from golden.optimizer import SGD
from golden.training import Training
from verif import accelerator
from verif.interpreter import interpret
from verif.record import BASE

__all__ = ["Batch", "Difference", "TrainingResult", "TrainingRun"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Images (N, H, W, C), labels or targets, and the optimizer of one step."""

    images: np.ndarray
    targets: np.ndarray
    optimizer: SGD


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first wrong number of a tensor after a batch."""

    batch: int
    tensor: str
    position: tuple
    actual: int
    expected: int
    count: int
    size: int

    def __str__(self):
        values = np.array([self.actual, self.expected], np.uint32)
        text = ""
        if self.tensor.startswith(("weights", "velocities", "statistics", "loss")):
            text = " ({:.9g}, expected {:.9g})".format(*values.view(np.float32))
        return (
            f"batch {self.batch}: {self.tensor}{list(self.position)} is {self.actual:#x}, "
            f"expected {self.expected:#x}{text}; {self.count} of {self.size} are wrong"
        )


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What came of a run.

    Members
    -------
    differences : list of :class:`Difference`; empty if everything equals golden
    losses, correct : of every batch, as the accelerator left them
    cycles : of every batch; counters : of the last one; both empty without the RTL
    compared : numbers that were compared
    final : memory after the last batch
    seconds : simulation time
    """

    differences: list
    losses: list
    correct: list
    cycles: list
    counters: dict
    compared: int
    final: bytes
    seconds: float = 0.0

    @property
    def passed(self):
        return not self.differences


class TrainingRun:
    """A network, its program and golden's training, batch by batch.

    Parameters
    ----------
    model : its weights are where training begins; it is not changed
    config : AdaGPConfig
    input_shape : (C, H, W)
    batches : list of :class:`Batch`, all of the same size
    loss, guard : see :func:`compiler.training.compile_training`, :class:`golden.training.Training`
    reuse : False keeps all maps and gradients of the last batch, and compares them as well
    report : called with a line of text now and then
    """

    def __init__(
        self,
        model,
        config,
        input_shape,
        batches,
        *,
        loss="cross_entropy",
        guard=True,
        reuse=True,
        report=None,
    ):
        self.model = copy.deepcopy(model).train()
        self.config, self.batches, self.guard, self.reuse = config, list(batches), guard, reuse
        self.program: TrainingProgram = compile_training(
            self.model, config, input_shape, images=len(batches[0].images), loss=loss, reuse=reuse
        )
        self.golden = Training(
            self.model,
            input_shape=input_shape,
            optimizer=batches[0].optimizer,
            rows=config.rows,
            columns=config.columns,
            operand_format=config.operand_format,
            loss=loss,
            guard=guard,
        )
        self.expected = []
        for number, batch in enumerate(self.batches):
            self.expected.append(self._step(batch))
            if report and number % 10 == 9:
                report(f"golden: {number + 1} of {len(self.batches)} batches")

    def _step(self, batch):
        """What golden leaves after a batch: name -> array."""
        golden = self.golden
        golden.optimizer = batch.optimizer
        result = golden.step(batch.images, batch.targets)
        expected = {f"weights {name}": bits.copy() for name, bits in golden.weights.items()}
        expected |= {f"velocities {name}": bits[0].copy() for name, bits in golden.slots.items()}
        expected |= {f"statistics {name}": bits.copy() for name, bits in golden.running.items()}
        expected |= {f"operands {name}": bits.copy() for name, bits in golden.operands.items()}
        expected["loss"] = np.atleast_1d(np.asarray(result.loss.value, np.uint32))
        if not self.reuse:
            expected |= {f"map {name}": bits for name, bits in result.forward.outputs.items()}
            expected |= {f"gradient of {name}": bits for name, bits in result.gradients.items()}
            expected |= {
                f"gradient of {name}": bits for name, bits in result.parameter_gradients.items()
            }
        return expected

    # What the accelerator has ----------------------------------------------------------------

    def actual(self, memory):
        """The same arrays from the memory window."""
        program = self.program
        found = {}
        for name, parameter in program.parameters.items():
            statistic = "velocity" not in parameter.tensors
            found[f"{'statistics' if statistic else 'weights'} {name}"] = parameter.unpack(
                "master", memory
            )
            if not statistic:
                found[f"velocities {name}"] = parameter.unpack("velocity", memory)
                if not self.reuse:
                    found[f"gradient of {name}"] = parameter.unpack("gradient", memory)
            if "operands" in parameter.tensors:
                found[f"operands {name}"] = parameter.unpack("operands", memory)
        found["loss"] = program.tensors["loss"].unpack(memory).ravel()[:1]
        if not self.reuse:
            fused = set(program.maps.values())
            for name, tensor in program.maps.items():
                # A layer that a ReLU is computed with has no map of its own.
                if tensor == name or tensor not in fused:
                    found[f"map {name}"] = program.tensors[tensor].unpack(memory)
            for name, tensor in program.gradients.items():
                found[f"gradient of {name}"] = program.tensors[tensor].unpack(memory)
        return found

    def compare(self, number, memory):
        """(differences, numbers compared) of the memory after batch ``number``."""
        differences, compared = [], 0
        expected = self.expected[number]
        for name, actual in self.actual(memory).items():
            wanted = np.asarray(expected[name]).reshape(actual.shape)
            compared += actual.size
            wrong = np.argwhere(actual != wanted)
            if len(wrong):
                place = tuple(int(index) for index in wrong[0])
                differences.append(
                    Difference(
                        batch=number,
                        tensor=name,
                        position=place,
                        actual=int(actual[place]),
                        expected=int(wanted[place]),
                        count=len(wrong),
                        size=actual.size,
                    )
                )
        return differences, compared

    def registers(self, batch):
        """Contents of the coefficient registers and the guard."""
        numbers = {
            "rate": batch.optimizer.learning_rate,
            "momentum": batch.optimizer.momentum,
            "decay": batch.optimizer.weight_decay,
        }
        bits = {
            f"COEFFICIENT{COEFFICIENTS.index(name)}": int(encode(FLOAT32, np.float64(number)))
            for name, number in numbers.items()
        }
        return bits | {"GUARD": int(self.guard)}

    # Running ---------------------------------------------------------------------------------

    def interpret(self, seed=1) -> TrainingResult:
        """All batches in the functional model, in an order that ``seed`` chooses."""
        memory = self.program.memory(self.model.state_dict())
        dumps = []
        for number, batch in enumerate(self.batches):
            for offset, data in self._changes(batch):
                memory[offset : offset + len(data)] = data
            registers = self.registers(batch)
            coefficients = [registers.get(f"COEFFICIENT{index}", 0) for index in range(8)]
            result = interpret(
                self.config,
                self.program.commands,
                memory,
                seed=seed + number,
                coefficients=coefficients,
                guard=self.guard,
            )
            assert not result.semaphores, f"tokens are left: {result.semaphores}"
            dumps.append(bytes(memory))
        return self._result(dumps)

    def part(self, first, last) -> "TrainingRun":
        """The same with batches [first, last) only; begins with the weights it is given."""
        run = copy.copy(self)
        run.batches, run.expected = self.batches[first:last], self.expected[first:last]
        return run

    def simulate(
        self, *, seed=1, directory=None, state=None, slots=None, **options
    ) -> TrainingResult:
        """All batches on the RTL, without a reset in between; ``options`` go to
        :func:`verif.accelerator.run`. ``state`` and ``slots`` replace the model's initial weights
        and statistics, see :meth:`compiler.training.TrainingProgram.memory`."""
        program, runs = self.program, []
        image = bytes(program.memory(state or self.model.state_dict(), slots))
        for number, batch in enumerate(self.batches):
            runs.append(
                accelerator.Run(
                    image=None if number else image,
                    program_size=len(program.commands),
                    program=program.program,
                    changes=tuple(self._changes(batch)),
                    registers=self.registers(batch),
                )
            )
        simulator = accelerator.build(self.config, memory_bytes=BASE + len(image))
        with tempfile.TemporaryDirectory() as place:
            outcomes, _ = accelerator.run(
                simulator, runs, seed=seed, directory=directory or Path(place), **options
            )
        for number, outcome in enumerate(outcomes):
            record = outcome.record
            if record.error or not record.done:
                raise RuntimeError(
                    f"batch {number} ended with {record.code} of {record.unit} at "
                    f"{record.address:#x}"
                )
        return self._result([outcome.memory for outcome in outcomes], outcomes)

    def _changes(self, batch):
        return self.program.batch(self.golden.encode_input(batch.images), batch.targets)

    def _result(self, dumps, outcomes=()):
        differences, compared = [], 0
        for number, memory in enumerate(dumps):
            last = number == len(dumps) - 1
            if self.reuse or last:
                found, count = self.compare(number, memory)
                differences += found
                compared += count
        losses, correct = zip(*map(self.program.loss_of, dumps), strict=True)
        return TrainingResult(
            differences=differences,
            losses=list(losses),
            correct=list(correct),
            cycles=[outcome.record.cycles for outcome in outcomes],
            counters=outcomes[-1].record.counters if outcomes else {},
            compared=compared,
            final=dumps[-1],
            seconds=sum(outcome.record.seconds for outcome in outcomes),
        )

    # Beside it -------------------------------------------------------------------------------

    def accuracy(self, images, labels, memory) -> float:
        """Share of ``images`` that the weights and statistics in ``memory`` classify correctly, in
        golden's arithmetic."""
        trained = copy.deepcopy(self.golden)
        state = {name: bits.view(np.uint32) for name, bits in self.program.state(memory).items()}
        trained.restore(
            {
                "count": self.golden.count,
                "weights": {name: state[name] for name in self.golden.weights},
                "slots": self.golden.slots,
                "running": {name: state[name] for name in self.golden.running},
            }
        )
        return float(np.mean(trained.predict(images).argmax(1) == labels))

    def torch_training(self, images, labels) -> tuple[list, float]:
        """Losses of torch in float32 on the same batches, and its accuracy on ``images`` then."""
        model, losses = copy.deepcopy(self.model).train(), []
        first = self.batches[0].optimizer
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=first.learning_rate,
            momentum=first.momentum,
            weight_decay=first.weight_decay,
        )
        for batch in self.batches:
            optimizer.param_groups[0]["lr"] = batch.optimizer.learning_rate
            loss = torch.nn.functional.cross_entropy(
                model(_to_torch(batch.images)), torch.from_numpy(batch.targets)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            outputs = model.eval()(_to_torch(images))
        return losses, float((outputs.argmax(1).numpy() == labels).mean())


def _to_torch(images):
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(images, 3, 1)).astype(np.float32))
