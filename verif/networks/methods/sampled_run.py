"""A network trains with sampled backward passes (VCAS) on the accelerator, beside golden."""

import numpy as np

from compiler.vcas import compile_vcas
from golden.layers.row_sampling import RowSampling
from golden.training.step import Training
from verif.networks.training_run import TrainingRun

__all__ = ["SampledRun"]


class SampledRun(TrainingRun):
    """As :class:`~verif.networks.training_run.TrainingRun`, with samples of images.

    Parameters
    ----------
    ratios : for each batch the share of the images that a layer is to keep, by name; the first one
        names all that are sampled
    counts : see :func:`compiler.vcas.compile_vcas`

    Members
    -------
    kept : for each batch how many images golden has kept, by layer
    """

    def __init__(self, model, config, input_shape, batches, *, ratios, counts=None, **options):
        if len(ratios) != len(batches):
            raise ValueError(f"{len(ratios)} ratios for {len(batches)} batches")
        self.ratios, self.counts, self.kept = list(ratios), counts, []
        super().__init__(model, config, input_shape, batches, **options)

    def _compile(self, input_shape, *, beside=False, **options):
        if beside:
            raise ValueError("steps of a sampled batch do not run beside each other")
        return compile_vcas(
            self.model, self.config, input_shape, sampled=list(self.ratios[0]), counts=self.counts,
            norms=True, **options,
        )  # fmt: skip

    def _training(self, **options):
        sampling = RowSampling(ratios=dict(self.ratios[0]), counts=self.program.counts)
        return Training(self.model, sampling=sampling, **options)

    def _step(self, batch):
        self.golden.sampling.ratios.update(self.ratios[len(self.kept)])
        result = super()._step(batch)
        samples = result.forward.samples
        self.kept.append({name: chosen.kept for name, chosen in samples.items()})
        return result

    def _expect(self, result):
        samples = result.forward.samples
        norms = {f"norms {name}": chosen.norms.copy() for name, chosen in samples.items()}
        return super()._expect(result) | norms

    def _passing(self, program, memory):
        norms = {f"norms {name}": values.view(np.uint32)
                 for name, values in program.norms_of(memory).items()}  # fmt: skip
        return super()._passing(program, memory) | norms

    def number_of(self, batch) -> int:
        """Of one of the batches."""
        return next(number for number, own in enumerate(self.batches) if own is batch)

    def changes(self, batch):
        """The images, the targets, and the shares of the images to keep."""
        shares = self.program.shares_of(self.ratios[self.number_of(batch)])
        return [*super().changes(batch), *shares]

    def part(self, first, last):
        run = super().part(first, last)
        run.ratios, run.kept = self.ratios[first:last], self.kept[first:last]
        return run
