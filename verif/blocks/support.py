"""What the cocotb benches of single blocks share: clock, reset, configuration, random numbers."""

import json
import os
import random

from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

from hw.config import AdaGPConfig

__all__ = ["CONFIG_VARIABLE", "configuration", "generator", "next_cycle", "settle", "start"]

CONFIG_VARIABLE = "ADAGP_CONFIG"
"""Environment variable with all fields of the configuration as JSON."""

_PERIOD_NS = 10


def configuration() -> AdaGPConfig:
    """The configuration that the test was started with."""
    return AdaGPConfig(**json.loads(os.environ[CONFIG_VARIABLE]))


def generator(name: str) -> random.Random:
    """Random numbers that depend on the seed of the run and on ``name`` only."""
    return random.Random(f"{os.environ['ADAGP_SEED']} {name}")


async def start(dut, *, reset_cycles: int = 3) -> None:
    """Start the clock, reset, and return in the first cycle after it, at the falling edge."""
    Clock(dut.clk, _PERIOD_NS, unit="ns").start()
    dut.rst.value = 1
    for _ in range(reset_cycles):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


async def settle() -> None:
    """Wait until outputs show what was just written to the inputs."""
    await Timer(1, unit="ns")


async def next_cycle(dut) -> None:
    """Wait for the middle of the next cycle, where inputs change."""
    await FallingEdge(dut.clk)
