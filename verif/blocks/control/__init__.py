"""Testbenches of the sequencer."""
