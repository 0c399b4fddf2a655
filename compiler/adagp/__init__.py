"""Training steps with predicted gradients."""

from .program import AdaGPProgram, compile_adagp

__all__ = ["AdaGPProgram", "compile_adagp"]
