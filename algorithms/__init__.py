"""Training in float32 with PyTorch: ADA-GP, its controls, networks, data and experiments.

Nothing here is bit-exact; what the hardware must compute is in ``golden``.
"""
