"""The command-line options that name a configuration."""

from hw.config import PRESETS, make_config

__all__ = ["options_of"]


def options_of(config) -> str:
    """``--variant V --preset P`` and a ``--set`` for every field that the preset does not give."""
    best = None
    for preset in PRESETS:
        base = make_config(variant=config.variant, preset=preset).as_dict()
        differing = {key: value for key, value in config.as_dict().items() if value != base[key]}
        if best is None or len(differing) <= len(best[1]):
            best = (preset, differing)
    preset, differing = best
    settings = "".join(f" --set {key}={value}" for key, value in differing.items())
    return f"--variant {config.variant} --preset {preset}{settings}"
