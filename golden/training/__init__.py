"""Training steps of whole networks."""
