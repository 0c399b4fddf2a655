"""Whole training steps: forward, loss, backward, update."""

from typing import TYPE_CHECKING, Any

from .program import TrainingProgram

if TYPE_CHECKING:
    from .compile import compile_training

__all__ = ["TrainingProgram", "compile_training"]


def __getattr__(name: str) -> Any:
    """``compile_training`` when it is asked for: only who compiles needs torch."""
    if name != "compile_training":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .compile import compile_training

    return compile_training
