"""Gradient prediction as the hardware does it."""
