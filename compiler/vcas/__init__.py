"""Training steps whose backward passes work on a sample of the images (VCAS)."""

from .compile import SampledProgram, compile_vcas

__all__ = ["SampledProgram", "compile_vcas"]
