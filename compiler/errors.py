"""The error of the compiler."""

from hw.config import AdaGPConfig

__all__ = ["CompileError", "require_config"]


class CompileError(ValueError):
    """A network that cannot be compiled; the text names the layer, the reason and what can."""


def require_config(config: object) -> None:
    """Raise a :class:`CompileError` unless ``config`` is an AdaGPConfig."""
    if not isinstance(config, AdaGPConfig):
        raise CompileError(
            f"config must be an AdaGPConfig, as hw.config.make_config gives, not {config!r}"
        )
