"""LOSS: value and gradient of the loss function."""
