"""Emission, synthesis runs, caches and tools that all flows share."""
