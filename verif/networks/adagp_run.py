"""A network trains by gradient prediction on the accelerator, batch after batch, beside golden."""

import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from compiler.adagp.compile import AdaGPProgram, PredictorShape, compile_adagp
from emulator.interpreter import interpret
from golden.prediction.config import PredictorConfig
from golden.prediction.step import PredictedTraining
from hw.registers import host
from verif.system import accelerator
from verif.system.record import BASE

from .training_result import TrainingResult
from .training_run import TrainingRun

__all__ = ["AdaGPResult", "AdaGPRun"]

#: Of a layer's tensors, those that are written in every batch, and in one of backpropagation.
_EVERY = ("cells", "inputs", "hidden", "prediction")
_LEARNED = ("error", "hidden_sums", "hidden_gradient")


@dataclass(frozen=True, kw_only=True)
class AdaGPResult(TrainingResult):
    """As ``TrainingResult``; ``gates`` after every batch, by layer."""

    gates: list


class AdaGPRun(TrainingRun):
    """A network, the programs of its phases and golden's training, batch by batch.

    Batches do what their phases say, see :func:`verif.networks.training_result.in_phases`.
    Parameters and members are those of :class:`~verif.networks.training_run.TrainingRun`, and:

    Parameters
    ----------
    predictor : :class:`golden.prediction.config.PredictorConfig`
    predict : names of the layers to predict, None for all that can be
    """

    program: AdaGPProgram
    golden: PredictedTraining

    def __init__(self, model, config, input_shape, batches, *, predictor=None, predict=None,
                 **options):  # fmt: skip
        self._predictor, self._predict = predictor or PredictorConfig(), predict
        super().__init__(model, config, input_shape, batches, **options)

    def _compile(self, input_shape, **options):
        chosen = self._predictor
        return compile_adagp(
            self.model,
            self.config,
            input_shape,
            shape=PredictorShape(
                channels=chosen.channels, map_size=chosen.map_size, running=chosen.running
            ),
            predict=self._predict,
            **options,
        )

    def _training(self, **options):
        return PredictedTraining(
            self.model,
            predictor=self._predictor,
            predictor_rows=self.config.cores[-1].rows,
            predict=self._predict,
            **options,
        )

    def _step(self, batch):
        return self.golden.step(batch.images, batch.targets, batch.phase)

    def program_of(self, batch):
        return self.program.parts["bp" if batch.phase.backpropagates else "gp"]

    def changes(self, batch):
        images = self.golden.encode_input(batch.images)
        return self.program.first.batch(images, batch.targets)

    def _coefficients(self, batch):
        return super()._coefficients(batch) | {
            "predictor_rate": self.golden.predictor_rate,
            "predictor_momentum": self.golden.predictor_momentum,
        }

    def _starting(self):
        start, tensors = self.start, self.program.first.tensors
        names = {
            "weights": "predictor.full",
            "velocity": "predictor.full.velocity",
            "taps": "predictor.taps",
            "taps_velocity": "predictor.taps.velocity",
        }
        predictor = {
            name: start["predictor"][key].reshape(tensors[name].shape)
            for key, name in names.items()
        }
        for name, own in self.program.predictor.layers.items():
            for what in ("input_statistics", "gradient_statistics"):
                predictor[getattr(own, what).name] = _lanes(start[what][name], getattr(own, what))
        return super()._starting() | {"predictor": predictor}

    # A run of many batches -------------------------------------------------------------------

    def refills(self):
        """The inputs of every batch, in the place that its number gives them."""
        return [
            self.program.batch(self.golden.encode_input(batch.images), batch.targets, number)
            for number, batch in enumerate(self.batches)
        ]

    def _check_loop(self, loop):
        wanted = [batch.phase for batch in self.batches]
        if loop.phases() != wanted:
            raise ValueError(f"the schedule has {loop.phases()}, the batches {wanted}")

    def _batch_registers(self):
        """Coefficients of each batch by the names of their registers."""
        found = [self.registers(batch) for batch in self.batches]
        return [{n: v for n, v in values.items() if n.startswith("COEFFICIENT")}
                for values in found]  # fmt: skip

    def interpret_loop(self, loop, seed=1, *, memory=None) -> TrainingResult:
        """All batches in one run of the functional model, in the phases that ``loop``, a
        :class:`~emulator.batch_loop.BatchLoop`, makes of the registers. It begins with
        ``memory``, by default :meth:`memory`. Raises ValueError for batches that one run cannot
        have."""
        self._check_loop(loop)
        memory = self.memory() if memory is None else bytearray(memory)
        dumps, refills = [], self.refills()
        coefficients = [host.coefficients(values) for values in self._batch_registers()]

        def boundary(done, contents):
            if done:
                dumps.append(bytes(contents))
            # The accelerator may load the next but one at the same time.
            for number in (0, 1) if done == 0 else (done + 1,):
                for offset, data in refills[number] if number < len(refills) else ():
                    contents[offset : offset + len(data)] = data
            return coefficients[done] if done < len(coefficients) else None

        program = self.program.loop
        result = interpret(
            self.config, program.commands, memory, seed=seed, guard=self.guard,
            coefficients=coefficients[0],
            sample_seed=self.registers(self.batches[0])["SAMPLE_SEED"],
            program=program.program, loop=loop, boundary=boundary,
        )  # fmt: skip
        assert not result.semaphores, f"tokens are left: {result.semaphores}"
        # The model counts what was refused over the whole run.
        return self.result(dumps, [None] * len(dumps))

    def simulate_loop(
        self, loop, *, seed=1, directory=None, memory=None, **options
    ) -> TrainingResult:
        """The same on the RTL; ``options`` go to :func:`verif.system.accelerator.run`."""
        self._check_loop(loop)
        image = bytes(self.memory() if memory is None else memory)
        program = self.program.loop
        run = accelerator.Run(
            image=image, program=program.program, program_size=len(program.commands),
            registers=self.registers(self.batches[0]), loop=loop, batches=tuple(self.refills()),
            batch_registers=tuple(self._batch_registers()),
        )  # fmt: skip
        simulator = accelerator.build(self.config, memory_bytes=BASE + len(image))
        with tempfile.TemporaryDirectory() as place:
            (outcome,), _ = accelerator.run(
                simulator, [run], seed=seed, directory=directory or Path(place), **options
            )
        record = outcome.record
        if record.error or not record.done:
            raise RuntimeError(
                f"the run ended with {record.code} of {record.unit} at {record.address:#x} after "
                f"{len(outcome.batches)} batches"
            )
        phases = [batch.record.phase for batch in outcome.batches]
        if phases != [phase.name for phase in loop.phases()]:
            raise RuntimeError(f"the accelerator went through {phases}")
        return self._compared(outcome.batches, record.seconds)

    # What is compared ------------------------------------------------------------------------

    def _expect(self, result):
        expected, golden = super()._expect(result), self.golden
        for name, own in self.program.predictor.layers.items():
            for what in ("input_statistics", "gradient_statistics"):
                values = getattr(golden, what)[name]
                expected[f"{what} of {name}"] = _lanes(values, getattr(own, what))
        expected |= {
            "predictor.full": golden.predictor_weights.copy(),
            "predictor.full.velocity": golden.predictor_velocity.copy(),
            "predictor.full.operands": golden.predictor_operands.copy(),
            "predictor.taps": golden.taps.copy(),
            "predictor.taps.velocity": golden.taps_velocity.copy(),
            "predictor.toeplitz": golden.toeplitz.copy(),
        }
        refused = sum(sum(layer.rejected.values()) for layer in result.layers.values())
        expected["rejected"] = expected["rejected"] + np.uint64(refused)
        if self.reuse:
            return expected
        for name, layer in result.layers.items():
            found = {
                "cells": layer.cells,
                "inputs": layer.standardized,
                "hidden": layer.predictor.hidden,
                "prediction": layer.predictor.output,
            }
            if result.phase.backpropagates:
                found["error"] = layer.error
                found["hidden_sums"] = layer.learned.hidden_sums
                found["hidden_gradient"] = layer.learned.hidden
                # These are the same tensors for all layers: what is left is that of the last one.
                expected["predictor.full.gradient"] = layer.learned.weights
                expected["predictor.toeplitz.gradient"] = layer.learned.toeplitz
                expected["predictor.taps.gradient"] = layer.learned.taps
            expected |= {f"{what} of {name}": values for what, values in found.items()}
        return expected

    def _passing(self, program, memory):
        found, backward = super()._passing(program, memory), program is self.program.first
        if self.reuse:
            return found
        predictor, tensors = self.program.predictor, program.tensors
        layers = list(predictor.layers.items())
        for name, own in reversed(layers) if backward else layers:
            for what in (*_EVERY, *(_LEARNED if backward else ())):
                values = tensors[getattr(own, what).name].unpack(memory)
                if what == "hidden_sums":
                    # The row of the bias is of no use.
                    values = values[:, :, :-1]
                found[f"{what} of {name}"] = values
        if backward:
            rows = layers[0][1].rows
            found["predictor.full.gradient"] = (
                tensors["predictor.full.gradient"].unpack(memory)[:, :rows]
            )  # fmt: skip
            for name in ("predictor.toeplitz.gradient", "predictor.taps.gradient"):
                found[name] = tensors[name].unpack(memory)
        return found

    def _lasting(self, program, memory):
        found, kept = super()._lasting(program, memory), self.program.predictor_state(memory)
        state = {}
        for name, own in self.program.predictor.layers.items():
            for what in ("input_statistics", "gradient_statistics"):
                state[f"{what} of {name}"] = kept[getattr(own, what).name]
        state |= {name: values for name, values in kept.items() if name in _STATE}
        return state | found

    def result(self, dumps, *more, **options):
        result = super().result(dumps, *more, **options)
        values = {part.name: getattr(result, part.name) for part in fields(TrainingResult)}
        return AdaGPResult(**values, gates=[self.program.gates(memory) for memory in dumps])


#: Tensors of the predictor that belong to no layer.
_STATE = (
    "predictor.full", "predictor.full.velocity", "predictor.full.operands", "predictor.taps",
    "predictor.taps.velocity", "predictor.toeplitz",
)  # fmt: skip


def _lanes(numbers, tensor):
    """Statistics as they lie in memory: every number in all lanes of a row."""
    return np.broadcast_to(numbers[:, np.newaxis], tensor.shape)
