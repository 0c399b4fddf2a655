"""Verilator builds, simulation runs and models of memories and vendor primitives."""
