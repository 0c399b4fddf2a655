"""Testbenches of single blocks."""
