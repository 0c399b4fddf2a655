"""The digits network learns from samples of the images (VCAS), whose size a controller chooses,
beside plain backpropagation."""

from dataclasses import dataclass, replace
from itertools import groupby

from algorithms.vcas.controller import VCASConfig

from .beside_plain import BesidePlain, train_beside_plain
from .controlled_run import ControlledRun

__all__ = ["BesideSampled", "controller_of", "train_vcas"]

#: The convolutions of the digits network.
_SAMPLED = ("0", "3", "7")


def controller_of(batches: int) -> VCASConfig:
    """Measures every ten batches, or six times in a shorter run. In so few batches the usual
    choices find no room: here sampling may add a quarter of SGD's variance, and s goes by tenths.
    """
    return VCASConfig(every=min(10, max(2, batches // 6)), images_share=0.25, norm_step=0.1)


@dataclass(frozen=True, kw_only=True)
class BesideSampled(BesidePlain):
    """As :class:`~verif.networks.methods.beside_plain.BesidePlain`; its run says what has been
    kept."""

    @property
    def notes(self) -> str:
        """With what the controller chose, and the images that were kept of each layer, from the
        input to the loss."""
        run, cycles = self.run, self.training.result.cycles
        batches, images = run.trained, run.program.images
        sampled = batches[run.host.config.every :]
        shares = [
            sum(run.kept[number][name] for number in sampled) / (images * max(1, len(sampled)))
            for name in _SAMPLED
        ]
        steps = [run.ratios[number]["0"] for number in batches]
        changes = [ratio for ratio, _ in groupby(steps)]
        measured = len(cycles) - len(batches)
        return (
            f"{measured} of the batches are measurements, "
            f"{sum(cycles) - sum(cycles[n] for n in batches):,} cycles; ratio of the first "
            f"convolution: {', '.join(f'{ratio:.3f}' for ratio in changes)}; images kept by the "
            f"convolutions once it changed: {', '.join(f'{share:.1%}' for share in shares)}; "
            f"{sum(cycles[n] for n in sampled) // max(1, len(sampled)):,} cycles per batch then; "
            f"{super().notes}"
        )


def train_vcas(config, *, batches: int, images: int, **options) -> BesideSampled:
    """Train on the RTL; ``options`` as for :func:`train_beside_plain`. A configuration without
    lists of rows gets one for a batch."""
    if config.has_training_engines and not config.row_list_depth:
        config = replace(config, row_list_depth=max(images, 1))

    def make(*arguments, echo, **more):
        return ControlledRun(*arguments, sampled=_SAMPLED, vcas=controller_of(batches), **more)

    found = train_beside_plain(config, what="sampled", batches=batches, images=images, make=make,
                               **options)  # fmt: skip
    return BesideSampled(**vars(found))
