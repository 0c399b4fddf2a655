"""Mutation testing of the hardware: ``python -m verif mutate``."""
