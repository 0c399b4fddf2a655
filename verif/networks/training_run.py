"""A network trains on the accelerator, batch after batch, beside golden."""

import copy
import tempfile
from pathlib import Path

import numpy as np

from compiler.training.compile import COEFFICIENTS, TrainingProgram, compile_training
from compiler.training.optimizer import Optimizer
from compiler.training.program import ECHO_LOSS
from emulator.interpreter import interpret
from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import FLOAT32
from golden.layers.optimizer import SGD, AdamW, BrakedSGD
from golden.training.step import Training
from hw.registers import host
from verif.system import accelerator
from verif.system.record import BASE

from .training_result import TrainingResult, compare_arrays

__all__ = ["TrainingRun"]


class TrainingRun:
    """A network, its program and golden's training, batch by batch.

    Parameters
    ----------
    model : its weights are where training begins; it is not changed
    config : AdaGPConfig
    input_shape : (C, H, W)
    batches : list of :class:`~verif.networks.training_result.Batch`, all of the same size
    loss, guard, sample_seed, echo : see :func:`compiler.training.compile_training`,
        :class:`golden.training.step.Training`
    reuse : False keeps all maps and gradients, and compares them as well
    loops : as for compile_training
    prepare : called with golden's training before the first batch; may change where it begins
    report : called with a line of text now and then

    Members
    -------
    program, golden : what runs on the accelerator, and its model after the last batch
    start : golden's state before the first batch
    expected : for each batch what golden leaves, arrays of codes by name
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
        sample_seed=0,
        echo=0,
        reuse=True,
        loops=None,
        beside=None,
        prepare=None,
        report=None,
    ):
        self.sample_seed = sample_seed
        self.model = copy.deepcopy(model).train()
        self.config, self.batches, self.guard, self.reuse = config, list(batches), guard, reuse
        more = {"echo": echo} if echo else {}
        self.program: TrainingProgram = self._compile(
            input_shape, images=batches[0].count, loss=loss, reuse=reuse, loops=loops,
            optimizer=_compiled(batches[0].optimizer), **more,
            **({} if beside is None else {"beside": beside}),
        )  # fmt: skip
        self.golden = self._training(
            input_shape=input_shape,
            optimizer=batches[0].optimizer,
            rows=config.rows,
            columns=config.columns,
            granule=config.granule_operands,
            operand_format=config.operand_format,
            loss=loss,
            guard=guard,
            sample_seed=sample_seed,
            **more,
        )
        if prepare:
            prepare(self.golden)
        self.start = self.golden.state()
        self.expected = []
        for number, batch in enumerate(self.batches):
            self.golden.optimizer = batch.optimizer
            self.expected.append(self._expect(self._step(batch)))
            if report and number % 10 == 9:
                report(f"golden: {number + 1} of {len(self.batches)} batches")

    @property
    def trained(self):
        """Numbers of the batches that it is to learn from."""
        return range(len(self.batches))

    # What a way to train consists of ---------------------------------------------------------

    def _compile(self, input_shape, **options):
        return compile_training(self.model, self.config, input_shape, **options)

    def _training(self, **options):
        return Training(self.model, **options)

    def _step(self, batch):
        """Golden's result of a batch."""
        return self.golden.step(batch.images, batch.targets)

    def program_of(self, batch) -> TrainingProgram:
        """What runs for a batch."""
        return self.program

    def _coefficients(self, batch):
        """Real numbers by name in COEFFICIENTS."""
        optimizer = batch.optimizer
        return {
            "rate": optimizer.learning_rate,
            "momentum": getattr(optimizer, "momentum", 0.0),
            "decay": optimizer.weight_decay,
            "braking": getattr(optimizer, "braking", 0.0),
        }

    def _starting(self):
        """What the program's memory is made of."""
        start = self.start
        weights = start["weights"] | start["running"]
        return {
            "state": {name: bits.view(np.float32) for name, bits in weights.items()},
            "slots": {
                role: {name: s[index].view(np.float32) for name, s in start["slots"].items()}
                for index, role in enumerate(self.golden.optimizer.slots)
            },
        }

    def _expect(self, result):
        """What golden leaves after a batch: name -> array of codes."""
        golden = self.golden
        expected = {f"weights {name}": bits.copy() for name, bits in golden.weights.items()}
        for index, role in enumerate(golden.optimizer.slots):
            expected |= {
                f"{role} {name}": bits[index].copy() for name, bits in golden.slots.items()
            }
        expected |= {f"statistics {name}": bits.copy() for name, bits in golden.running.items()}
        expected |= {f"operands {name}": bits.copy() for name, bits in golden.operands.items()}
        steps = [result, *result.echoes]
        expected["rejected"] = _count(sum(sum(step.skipped.values()) for step in steps))
        for output, loss in zip(self.program.outputs, result.losses, strict=False):
            expected |= _loss_arrays(output.value, loss.value, loss.correct)
        for echo in result.echoes:
            expected |= _loss_arrays(ECHO_LOSS, echo.loss.value, echo.loss.correct)
        if not self.reuse:
            expected |= {f"map {name}": bits for name, bits in result.forward.outputs.items()}
            gradients = result.gradients | result.parameter_gradients
            for echo in result.echoes:
                gradients |= echo.parameter_gradients
            expected |= {f"gradient of {name}": bits for name, bits in gradients.items()}
        return expected

    def _passing(self, program, memory):
        """What the accelerator has that does not outlive a batch, in order of computation."""
        found = {}
        if not self.reuse:
            fused = set(program.maps.values())
            for name, tensor in program.maps.items():
                # A layer that a ReLU is computed with has no map of its own.
                if tensor == name or tensor not in fused:
                    found[f"map {name}"] = program.tensors[tensor].unpack(memory)
        if program.outputs[0].value in program.tensors:
            losses = program.losses_of(memory)
            for output, (value, correct) in zip(program.outputs, losses, strict=True):
                found |= _loss_arrays(output.value, value.view(np.uint32), correct)
        if echo := program.echo_loss_of(memory):
            found |= _loss_arrays(ECHO_LOSS, echo[0].view(np.uint32), echo[1])
        if not self.reuse:
            for name, tensor in program.gradients.items():
                found[f"gradient of {name}"] = program.tensors[tensor].unpack(memory)
            for name, parameter in program.parameters.items():
                if "gradient" in parameter.tensors:
                    found[f"gradient of {name}"] = parameter.unpack("gradient", memory)
        return found

    def _lasting(self, program, memory):
        """What it keeps."""
        found = {}
        for name, parameter in program.parameters.items():
            statistic = name in self.golden.running
            for role in parameter.tensors if parameter.constant is None else ():
                if role not in ("gradient", "mask"):
                    what = ("statistics" if statistic else "weights") if role == "master" else role
                    found[f"{what} {name}"] = parameter.unpack(role, memory)
        return found

    # Beside golden ---------------------------------------------------------------------------

    def actual(self, memory, number=-1):
        """What the accelerator has after a batch, as :attr:`expected`, from the memory window."""
        program = self.program_of(self.batches[number])
        return self._passing(program, memory) | self._lasting(program, memory)

    def compare(self, number, memory, rejected=None):
        """(differences, numbers compared) of the memory after batch ``number``, in which the guard
        ``rejected`` so many tiles."""
        actual = self.actual(memory, number)
        if rejected is not None:
            actual["rejected"] = _count(rejected)
        return compare_arrays(number, actual, self.expected[number], self._decode)

    def _decode(self, codes):
        if codes.dtype == np.uint64:
            return codes
        return decode(FLOAT32 if codes.dtype == np.uint32 else self.golden.format, codes)

    # Running ---------------------------------------------------------------------------------

    def memory(self) -> bytearray:
        """The memory window before the first batch."""
        return self.program.memory(**self._starting())

    def registers(self, batch, number=0):
        """Contents of the coefficient registers, the guard, and the seed of batch ``number``."""
        bits = {
            f"COEFFICIENT{COEFFICIENTS.index(name)}": int(encode(FLOAT32, np.float64(number)))
            for name, number in self._coefficients(batch).items()
        }
        seed = (self.sample_seed + number) & 0xFFFFFFFF
        return bits | {"GUARD": int(self.guard), "SAMPLE_SEED": seed}

    def changes(self, batch) -> list:
        """What the host writes into the window before a batch: (offset, bytes) each."""
        images = self.golden.encode_input(batch.images)
        return self.program_of(batch).batch(images, batch.targets)

    def interpret(self, seed=1) -> TrainingResult:
        """All batches in the functional model, in an order that ``seed`` chooses."""
        memory, dumps, rejected = self.memory(), [], []
        for number, batch in enumerate(self.batches):
            for offset, data in self.changes(batch):
                memory[offset : offset + len(data)] = data
            registers = self.registers(batch, number)
            result = interpret(
                self.config,
                self.program_of(batch).commands,
                memory,
                seed=seed + number,
                coefficients=host.coefficients(registers),
                sample_seed=registers["SAMPLE_SEED"],
                guard=self.guard,
                program=self.program_of(batch).program,
            )
            assert not result.semaphores, f"tokens are left: {result.semaphores}"
            dumps.append(bytes(memory))
            rejected.append(sum(result.rejected))
        return self.result(dumps, rejected)

    def part(self, first, last) -> "TrainingRun":
        """The same with batches [first, last) only; begins with the memory it is given."""
        run = copy.copy(self)
        run.batches, run.expected = self.batches[first:last], self.expected[first:last]
        run.sample_seed = self.sample_seed + first
        return run

    def simulate(self, **options) -> TrainingResult:
        """All batches on the RTL, compared with golden; ``options`` are those of
        :meth:`outcomes`."""
        outcomes = self.outcomes(**options)
        return self._compared(outcomes)

    def _compared(self, outcomes, seconds=0.0):
        """The result of one outcome for each batch."""
        counts = [f"CORE{core.index}_VECTOR_REJECTED" for core in self.config.cores]
        rejected = [sum(outcome.record.counters[c] for c in counts) for outcome in outcomes]
        memories = [outcome.memory for outcome in outcomes]
        return self.result(memories, rejected, outcomes, seconds)

    def outcomes(self, *, seed=1, directory=None, memory=None, memory_bytes=0, **options) -> list:
        """All batches on the RTL, without a reset in between: ``Outcome`` s.

        ``options`` go to :func:`verif.system.accelerator.run`. It begins with ``memory``, by
        default :meth:`memory`. The simulated memory has at least ``memory_bytes``, so that several
        networks may share a build."""
        image, runs = bytes(self.memory() if memory is None else memory), []
        for number, batch in enumerate(self.batches):
            program = self.program_of(batch)
            runs.append(
                accelerator.Run(
                    image=None if number else image,
                    program_size=len(program.commands),
                    program=program.program,
                    changes=tuple(self.changes(batch)),
                    registers=self.registers(batch, number),
                )
            )
        size = max(memory_bytes, BASE + len(image))
        simulator = accelerator.build(self.config, memory_bytes=size)
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
        return outcomes

    def result(self, dumps, rejected, outcomes=(), seconds=0.0) -> TrainingResult:
        """What came of it, from the memory after every batch, how many tiles the guard rejected in
        it (None: unknown), and on the RTL its outcome."""
        differences, compared, losses = [], 0, []
        for number, (memory, tiles) in enumerate(zip(dumps, rejected, strict=True)):
            found, count = self.compare(number, memory, tiles)
            differences += found
            compared += count
            program = self.program_of(self.batches[number])
            known = program.outputs[0].value in program.tensors
            losses.append(program.loss_of(memory) if known else (None, None))
        losses, correct = zip(*losses, strict=True)
        return TrainingResult(
            differences=differences,
            losses=list(losses),
            correct=list(correct),
            rejected=rejected,
            cycles=[outcome.record.cycles for outcome in outcomes],
            counters=[outcome.record.counters for outcome in outcomes],
            compared=compared,
            final=dumps[-1],
            seconds=seconds or sum(outcome.record.seconds for outcome in outcomes),
        )

    # Accuracy --------------------------------------------------------------------------------

    def accuracy(self, images, labels, memory) -> float:
        """Share of ``images`` that the weights and statistics in ``memory`` classify correctly, in
        golden's arithmetic."""
        found = self._lasting(self.program_of(self.batches[-1]), memory)
        trained = copy.deepcopy(self.golden)
        state = trained.state()
        for key, what in (("weights", "weights"), ("running", "statistics")):
            state[key] = {name: found[f"{what} {name}"] for name in state[key]}
        trained.restore(state)
        return float(np.mean(trained.predict(images).argmax(1) == labels))


def _loss_arrays(name, value, correct):
    """The value of a loss, float32 bits, and its correct answers; by name."""
    bits = np.atleast_1d(np.asarray(value, np.uint32))
    return {name: bits, name.replace("loss", "correct"): _count(correct)}


def _compiled(optimizer) -> Optimizer:
    """What a program is compiled for, of golden's optimizer."""
    if isinstance(optimizer, BrakedSGD):
        return Optimizer(kind="braked")
    if isinstance(optimizer, SGD):
        return Optimizer(kind="nesterov" if optimizer.nesterov else "sgd")
    kind = "adamw" if isinstance(optimizer, AdamW) else "adam"
    return Optimizer(kind=kind, betas=tuple(optimizer.betas), epsilon=optimizer.epsilon)


def _count(number):
    return np.array([number], np.uint64)
