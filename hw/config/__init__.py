"""The configuration of an accelerator, and of each of its cores."""

from .accelerator import (
    PRESETS,
    TECHNOLOGIES,
    VARIANTS,
    AdaGPConfig,
    ConfigError,
    make_config,
)
from .check import BUFFER_ADDRESS_WIDTH
from .core import CoreConfig

__all__ = [
    "BUFFER_ADDRESS_WIDTH",
    "PRESETS",
    "TECHNOLOGIES",
    "VARIANTS",
    "AdaGPConfig",
    "ConfigError",
    "CoreConfig",
    "make_config",
]
