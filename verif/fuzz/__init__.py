"""Fuzzing: random command streams, registers and windows on random slaves."""
