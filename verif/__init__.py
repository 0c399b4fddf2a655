"""Verification: cocotb testbenches on Verilator, drivers, scoreboards and the regression."""
