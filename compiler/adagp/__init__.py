"""Training steps with predicted gradients."""

from typing import TYPE_CHECKING, Any

from .program import AdaGPProgram

if TYPE_CHECKING:
    from .compile import compile_adagp

__all__ = ["AdaGPProgram", "compile_adagp"]


def __getattr__(name: str) -> Any:
    """``compile_adagp`` when it is asked for: only who compiles needs torch."""
    if name != "compile_adagp":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .compile import compile_adagp

    return compile_adagp
