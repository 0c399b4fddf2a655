"""Whole networks by name: compiled, summed up, all of them in a table."""
