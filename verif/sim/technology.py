"""Simulation models of what Verilog for a technology instantiates."""

from pathlib import Path

__all__ = ["MODELS"]

_RTL = Path(__file__).parent / "rtl"

#: Technology (:data:`hw.config.TECHNOLOGIES`) -> Verilog files that simulations need besides.
MODELS = {"generic": (), "ecp5": (_RTL / "mult18x18d.v", _RTL / "ccu2c.v")}
