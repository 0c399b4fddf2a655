"""Testbenches of the register file."""
