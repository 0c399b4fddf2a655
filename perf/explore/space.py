"""The machines that are looked at: all combinations of sizes that are configurations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from hw.config import AdaGPConfig, ConfigError
from hw.config.selection import select_config

__all__ = ["SIZES", "Candidate", "candidates"]

#: Field of the configuration -> what is tried unless the command line says otherwise; of the
#: predictor's array a square one, and that of preset ``paper``.
SIZES: dict[str, tuple[int, ...]] = {
    "rows": (8, 12, 16),
    "columns": (8, 12, 16, 24),
    "post_lanes": (0,),
    "predictor_rows": (8,),
    "predictor_columns": (8, 10),
    "buffer_bank_depth": (1024, 2048, 4096),
    "axi_data_width": (64, 128, 256),
}
_OF_PREDICTOR = ("predictor_rows", "predictor_columns")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A machine by its variant and settings, as in "rows=16"."""

    variant: str
    preset: str
    settings: tuple[str, ...]
    config: AdaGPConfig

    @property
    def arrays(self) -> str:
        """Sizes of the arrays, and lanes of the main core where they are not the usual ones."""
        arrays = " + ".join(f"{core.rows} × {core.columns}" for core in self.config.cores)
        lanes = self.config.post_lanes
        return f"{arrays}, {lanes} lanes" if lanes else arrays

    @property
    def text(self) -> str:
        """In a few words, for people."""
        return (f"{self.variant} {self.arrays}, {self.config.buffer_bank_depth} words a bank, "
                f"{self.config.axi_data_width} bit")  # fmt: skip


def candidates(
    variants: Sequence[str], sizes: Mapping[str, Sequence[int]], *, preset: str = "paper",
    settings: Sequence[str] = (),
) -> Iterator[Candidate]:  # fmt: skip
    """All of them; what is no configuration, or differs in what a variant does not have, is left
    out.

    Parameters
    ----------
    sizes : as :data:`SIZES`
    settings : of every machine
    """
    seen = set()
    for variant in variants:
        usual = select_config(variant=variant, preset=preset, settings=tuple(settings))
        for values in product(*sizes.values()):
            fields = dict(zip(sizes, values, strict=True))
            if variant != "max":
                fields = {name: v for name, v in fields.items() if name not in _OF_PREDICTOR}
            # Only what differs, so that the same machine is the same cell.
            differing = {n: value for n, value in fields.items() if getattr(usual, n) != value}
            lanes = differing.pop("post_lanes", 0)
            own = (*settings, *(f"{name}={value}" for name, value in differing.items()))
            config = _machine(variant, preset, own)
            if lanes and (config is None or config.cores[0].post_lanes != lanes):
                own = (*own, f"post_lanes={lanes}")
                config = _machine(variant, preset, own)
            if config is not None and config.hash not in seen:
                seen.add(config.hash)
                yield Candidate(variant=variant, preset=preset, settings=own, config=config)


def _machine(variant: str, preset: str, settings: Sequence[str]) -> AdaGPConfig | None:
    """None if there is none of these settings."""
    try:
        return select_config(variant=variant, preset=preset, settings=tuple(settings))
    except ConfigError:
        return None
