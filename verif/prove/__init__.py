"""Formal proofs about single blocks: ``python -m verif prove``."""
