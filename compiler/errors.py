"""The error of the compiler."""

__all__ = ["CompileError"]


class CompileError(ValueError):
    """A network that cannot be compiled; the text names the layer, the reason and what can."""
