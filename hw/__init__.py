"""Synthesizable blocks of the accelerator, as Amaranth components."""
