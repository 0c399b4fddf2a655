"""The digits network learns from samples of the images (VCAS), beside plain backpropagation."""

from dataclasses import dataclass, replace

from .beside_plain import BesidePlain, train_beside_plain
from .sampled_run import SampledRun

__all__ = ["RATIO", "BesideSampled", "train_vcas"]

#: The share of the images that each convolution is to keep.
RATIO = 0.5
#: The convolutions of the digits network.
_SAMPLED = ("0", "3", "7")


@dataclass(frozen=True, kw_only=True)
class BesideSampled(BesidePlain):
    """As :class:`~verif.networks.beside_plain.BesidePlain`; its run says what has been kept."""

    @property
    def notes(self) -> str:
        """With the images that were kept of each layer, from the input to the loss."""
        batches, images = self.run.kept, self.run.program.images
        shares = [sum(batch[name] for batch in batches) / (images * len(batches))
                  for name in _SAMPLED]  # fmt: skip
        kept = ", ".join(f"{share:.1%}" for share in shares)
        cycles = sum(self.training.result.cycles) // len(batches)
        return (
            f"images kept by the convolutions: {kept} (ratio {RATIO}); {cycles:,} cycles per batch "
            f"on the average; {super().notes}"
        )


def train_vcas(config, *, batches: int, images: int, **options) -> BesideSampled:
    """Train on the RTL; ``options`` as for :func:`train_beside_plain`. A configuration without
    lists of rows gets one for a batch."""
    if config.has_training_engines and not config.row_list_depth:
        config = replace(config, row_list_depth=max(images, 1))

    def make(*arguments, echo, **more):
        ratios = [dict.fromkeys(_SAMPLED, RATIO)] * batches
        return SampledRun(*arguments, ratios=ratios, **more)

    found = train_beside_plain(config, what="sampled", batches=batches, images=images, make=make,
                               **options)  # fmt: skip
    return BesideSampled(**vars(found))
