"""How the model's loops are compiled, and where the results are kept."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from cli.build_directory import PROJECT_ROOT, build_root

__all__ = ["inline", "kernel"]

#: What the compiled loops are made of: themselves, and the constants that they take over.
_SOURCES = ("perf/machine/kernels", "hw/isa", "hw/control", "hw/engines", "hw/dma", "hw/bus")


def _digest() -> str:
    """Of all sources: numba itself sees changes of a function's own file only."""
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted(Path(PROJECT_ROOT, folder).rglob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


_PLACE = str(build_root() / "numba" / f"machine-{_digest()}")


def kernel(function: Callable[..., Any]) -> Any:
    """Compiles ``function`` for the types that it is first called with; later processes load it."""
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _PLACE
    try:
        return numba.njit(cache=True, error_model="numpy")(function)
    finally:
        numba.config.CACHE_DIR = before


#: For what only kernels call: it becomes part of them.
inline = numba.njit(error_model="numpy")
