"""Testbenches of the DMA engines."""
