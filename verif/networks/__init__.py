"""Whole networks on the simulated accelerator, compared with the golden models."""
