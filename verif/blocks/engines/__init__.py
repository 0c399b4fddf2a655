"""Testbenches of the compute engines."""
