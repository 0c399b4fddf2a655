"""What is counted: a network, its batch, and the machine that trains it."""

import argparse
from dataclasses import dataclass, replace
from typing import Any

from compiler.adagp.tensors import PredictorShape
from compiler.networks.registry import (
    check_width,
    network_names,
    published,
    read_shape,
    usual_method,
)
from hw.config import PRESETS, VARIANTS, AdaGPConfig
from hw.config.selection import DEFAULT_PRESET, select_config
from perf.machine.command import LATENCY_CYCLES

__all__ = ["METHODS", "Cell"]

#: Backpropagation; the same and with predicted gradients.
METHODS = ("bp", "adagp")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A batch on a machine.

    Members
    -------
    network, input : name, and size as in "3x32x32" or "32+32"
    batch : images
    variant, preset, settings : of the hardware; settings as in "rows=16"
    method : "bp", or "adagp", which has a batch of Phase BP and one of Phase GP
    optimizer : as ``python -m perf cycles`` names it
    classes : None: as many as such images usually have
    width : what numbers of channels are multiplied by
    channels, map_size : c and S of the predictor; its linear layer has F = c · S² inputs
    latency : cycles that memory adds to every burst

    Raises
    ------
    ValueError, CompileError, ConfigError
        on construction, with what is wrong and what is allowed.
    """

    network: str
    input: str
    batch: int
    variant: str = "baseline"
    method: str = "bp"
    preset: str = DEFAULT_PRESET
    settings: tuple[str, ...] = ()
    optimizer: str = "sgd"
    classes: int | None = None
    width: float = 1.0
    channels: int = PredictorShape.channels
    map_size: int = PredictorShape.map_size
    latency: int = LATENCY_CYCLES

    def __post_init__(self) -> None:
        allowed: dict[str, Any] = {
            "network": network_names(), "variant": tuple(VARIANTS), "method": METHODS,
            "preset": tuple(PRESETS),
        }  # fmt: skip
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                found = getattr(self, name)
                raise ValueError(f"{name} must be one of {', '.join(values)}, not {found!r}")
        read_shape(self.input)
        for name, least in (("batch", 1), ("latency", 0), ("channels", 1), ("map_size", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        check_width(self.width)
        if self.classes is not None and self.classes < 1:
            raise ValueError(f"classes must be at least 1, not {self.classes}")
        if self.method == "adagp" and self.variant == "baseline":
            raise ValueError("variant baseline has no predictor: its method must be bp, not adagp")
        object.__setattr__(self, "settings", tuple(sorted(self.settings)))

    @property
    def config(self) -> AdaGPConfig:
        """The machine. Raises ConfigError for wrong settings."""
        return select_config(variant=self.variant, preset=self.preset, settings=self.settings)

    @property
    def features(self) -> int:
        """F of the predictor."""
        return self.channels * self.map_size**2

    @property
    def program(self) -> "Cell":
        """The same for all cells that have one program: those that differ in the memory."""
        return replace(self, latency=0)

    @property
    def options(self) -> argparse.Namespace:
        """What :func:`compiler.networks.command.compiled` takes."""
        return argparse.Namespace(
            network=self.network, input=self.input, batch=self.batch, method=self.method,
            optimizer=self.optimizer, classes=self.classes, width=self.width,
            loss=published(self.network).loss,
        )  # fmt: skip

    @property
    def arguments(self) -> list[str]:
        """The command line behind ``python -m perf count``, without what is usual."""
        usual = {field: default.default for field, default in self.__dataclass_fields__.items()}
        found = ["--network", self.network, "--input", self.input, "--batch", str(self.batch),
                 "--variant", self.variant]  # fmt: skip
        for name in ("preset", "optimizer", "classes", "width", "channels", "map_size", "latency"):
            if getattr(self, name) != usual[name]:
                found += [f"--{name.replace('_', '-')}", str(getattr(self, name))]
        if self.method != usual_method(self.variant):
            found += ["--method", self.method]
        for setting in self.settings:
            found += ["--set", setting]
        return found

    @property
    def text(self) -> str:
        """In a few words, for people."""
        others = [f"preset {self.preset}"] * (self.preset != DEFAULT_PRESET) + [*self.settings]
        others += [f"{self.classes} classes"] * (self.classes is not None)
        others += [f"width {self.width:g}"] * (self.width != 1)
        if (self.channels, self.map_size) != (PredictorShape.channels, PredictorShape.map_size):
            others.append(f"F = {self.features}")
        others += [f"latency {self.latency}"] * (self.latency != LATENCY_CYCLES)
        parts = [f"{self.network} {self.input}", f"batch {self.batch}", self.variant, self.method]
        return ", ".join(parts + others)
