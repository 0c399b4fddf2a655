"""Whole training steps: forward, loss, backward, update."""

from .program import TrainingProgram, compile_training

__all__ = ["TrainingProgram", "compile_training"]
