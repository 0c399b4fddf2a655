"""Convolutions and linear layers, forward and backward."""
