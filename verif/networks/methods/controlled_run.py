"""A network trains with sampled backward passes (VCAS) whose ratios a controller on the host
chooses, from measurements on the accelerator, beside golden."""

from dataclasses import replace

import numpy as np

from algorithms.vcas.controller import VCASConfig
from emulator.sample_controller import Measured, SampleController
from golden.layers.optimizer import SGD

from .sampled_run import SampledRun

__all__ = ["ControlledRun"]

#: The optimizer of a measurement.
_MEASURING = SGD(learning_rate=0.0, momentum=0.0, weight_decay=0.0)


class ControlledRun(SampledRun):
    """As :class:`~verif.networks.methods.sampled_run.SampledRun`, with measurements between
    batches.

    The runs of a measurement are batches as any: everything that they leave is compared. The host
    makes its ratios of golden's numbers, which are those of the accelerator if nothing differs.

    Parameters
    ----------
    batches : of the training, whose optimizer is an ``SGD``; behind the last one is no measurement
    sampled : names of the layers, from the input to the loss
    vcas : VCASConfig

    Members
    -------
    host : :class:`~emulator.sample_controller.SampleController` after the last batch
    """

    def __init__(
        self, model, config, input_shape, batches, *, sampled, vcas: VCASConfig, **options
    ):  # fmt: skip
        self.host = SampleController(sampled, vcas)
        self._measurement, self._before = None, None
        everything, self._measures = [], []
        for number, batch in enumerate(batches, 1):
            everything.append(batch)
            self._measures.append(False)
            if self.host.due(number) and number < len(batches):
                for own in batches[number - vcas.repetitions : number]:
                    # An object of its own for every run, by which it is known.
                    everything += [
                        replace(own, optimizer=_MEASURING) for _ in range(1 + vcas.repetitions)
                    ]
                self._measures += [True] * self.host.runs
        #: For each batch what the host writes back in front of it: bytes by offset.
        self._returned = [[] for _ in everything]
        ratios = [self.host.ratios] * len(everything)
        super().__init__(model, config, input_shape, everything, ratios=ratios, **options)

    @property
    def trained(self):
        """Numbers of the batches of the training."""
        return [number for number, measures in enumerate(self._measures) if not measures]

    def _step(self, batch):
        number = len(self.kept)
        if not self._measures[number]:
            if self._before is not None:
                self._return(number)
            self.ratios[number] = self.host.ratios
            return super()._step(batch)
        if self._before is None:
            self._before, self._measurement = self.golden.state(), self.host.measure()
            self._wanted = next(self._measurement)
        self.ratios[number] = self._wanted[1]
        result = super()._step(batch)
        samples = result.forward.samples
        measured = Measured(
            gradients={name: _real(result.parameter_gradients[f"{name}.weight"])
                       for name in samples},
            norms={name: _real(chosen.norms) for name, chosen in samples.items()},
        )  # fmt: skip
        self._wanted = _next(self._measurement, measured)
        return result

    def _return(self, number):
        """What a measurement has changed is as it was."""
        before, parameters = self._before, self.program.parameters
        self._before = None
        self.golden.restore(
            self.golden.state() | {"slots": before["slots"], "running": before["running"]}
        )
        values = {(name, "velocity"): slots[0] for name, slots in before["slots"].items()}
        values |= {(name, "master"): bits for name, bits in before["running"].items()}
        self._returned[number] = [
            (parameters[name].tensors[role].offset, parameters[name].pack(role, bits))
            for (name, role), bits in values.items()
        ]

    def changes(self, batch):
        """Those of any sampled batch, and what a measurement had changed."""
        return [*super().changes(batch), *self._returned[self.number_of(batch)]]

    def part(self, first, last):
        run = super().part(first, last)
        run._measures, run._returned = self._measures[first:last], self._returned[first:last]
        return run


def _next(generator, sent):
    """What the generator gives next; None at its end."""
    try:
        return generator.send(sent)
    except StopIteration:
        return None


def _real(bits):
    return np.asarray(bits, np.uint32).view(np.float32)
