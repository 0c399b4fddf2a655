"""A network trains with sampled backward passes (VCAS) on the accelerator, beside golden."""

from compiler.vcas import compile_vcas
from golden.layers.row_sampling import RowSampling
from golden.training.step import Training

from .training_run import TrainingRun

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
            **options,
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

    def changes(self, batch):
        """The images, the targets, and the shares of the images to keep."""
        number = next(n for n, own in enumerate(self.batches) if own is batch)
        return [*super().changes(batch), *self.program.shares_of(self.ratios[number])]

    def part(self, first, last):
        run = super().part(first, last)
        run.ratios, run.kept = self.ratios[first:last], self.kept[first:last]
        return run
