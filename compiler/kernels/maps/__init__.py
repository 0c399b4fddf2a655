"""Layers without parameters."""
