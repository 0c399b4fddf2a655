"""The loss and what is done with gradients."""
