"""Where build products go."""

import os
from pathlib import Path

__all__ = ["PROJECT_ROOT", "build_root"]

PROJECT_ROOT = Path(__file__).resolve().parents[1]
"""Root of the source tree."""


def build_root() -> Path:
    """Return the directory of build products: ``build/``, or ``$ADAGP_BUILD_DIR`` when set."""
    return Path(os.environ.get("ADAGP_BUILD_DIR") or PROJECT_ROOT / "build").resolve()
