"""Testbenches of the array."""
