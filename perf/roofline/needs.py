"""What a variant needs before it pays: bandwidth, buffer and batch, one after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.networks.registry import usual_method
from perf.area.designs import VARIANTS
from perf.area.verdict import speeds
from perf.counted import Cell, Count

__all__ = ["SWEEPS", "Setting", "cells_of", "in_words", "pays_from", "settings_of", "swept"]

#: What is varied -> values. "batch" is images; the others are fields of the configuration.
SWEEPS: dict[str, tuple[int, ...]] = {
    "batch": (1, 2, 4, 8, 16, 32, 64, 128),
    "axi_data_width": (32, 64, 128, 256, 512),
    "buffer_bank_depth": (512, 1024, 2048, 4096, 8192),
}
_WORDS = {
    "batch": "images in a batch", "axi_data_width": "bits of the bus",
    "buffer_bank_depth": "words in a bank of the global buffer",
}  # fmt: skip


def in_words(name: str) -> str:
    """What is varied, for people; a field that has no words is its name."""
    return _WORDS.get(name, name)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value of what is varied, with the speed-up of each variant over a baseline of the same
    sizes by schedule B; None where one of the two has no program or was not counted."""

    name: str
    value: int
    speed: Mapping[str, float | None]


def _cell(base: Cell, variant: str, name: str, value: int) -> Cell:
    cell = replace(base, variant=variant, method=usual_method(variant))
    if name == "batch":
        return replace(cell, batch=value)
    if getattr(cell.config, name) == value:
        return cell  # as it is
    return replace(cell, settings=(*cell.settings, f"{name}={value}"))


def settings_of(sweeps: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """(what is varied, value), one after the other."""
    return [(name, value) for name, values in sweeps.items() for value in values]


def cells_of(base: Cell, sweeps: Mapping[str, Sequence[int]]) -> list[Cell]:
    """What has to be counted."""
    return [
        _cell(base, variant, name, value)
        for name, value in settings_of(sweeps)
        for variant in ("baseline", *VARIANTS)
    ]


def swept(
    base: Cell, sweeps: Mapping[str, Sequence[int]], get: Callable[[Cell], Count | None]
) -> list[Setting]:
    """Every setting of which the baseline was counted."""
    found = []
    for name, value in settings_of(sweeps):
        plain = get(_cell(base, "baseline", name, value))
        if plain is None:
            continue
        speed: dict[str, float | None] = {}
        for variant in VARIANTS:
            own = get(_cell(base, variant, name, value))
            usable = own is not None and own.reason is None and plain.reason is None
            speed[variant] = speeds(plain, own)["B"] if own is not None and usable else None
        found.append(Setting(name=name, value=value, speed=speed))
    return found


def pays_from(found: Sequence[Setting], name: str, variant: str) -> int | None:
    """The smallest value from which on the variant is faster than the baseline at every larger one;
    None if it is not at the largest."""
    best = None
    for setting in sorted(found, key=lambda each: -each.value):
        speed = setting.speed[variant]
        if setting.name != name or speed is None:
            continue
        if speed <= 1:
            break
        best = setting.value
    return best
