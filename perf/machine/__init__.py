"""The machine on an event level: cycles and counters of command streams, without data."""

from .model import Result, run

__all__ = ["Result", "run"]
