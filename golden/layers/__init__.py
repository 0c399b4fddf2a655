"""Layers and their gradients."""
