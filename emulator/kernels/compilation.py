"""How kernels are compiled, and where the results are kept."""

import hashlib
from pathlib import Path

import numba

from cli.build_directory import PROJECT_ROOT, build_root

__all__ = ["inline", "kernel"]

#: What kernels are made of: themselves, and the constants that they take over.
_SOURCES = ("emulator/kernels", "golden/arithmetic", "hw/isa", "hw/config")


def _digest() -> str:
    """Of all sources: numba itself sees changes of a kernel's own file only."""
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted(Path(PROJECT_ROOT, folder).glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


numba.config.CACHE_DIR = str(build_root() / "numba" / _digest())

#: Compiles a function for the types that it is first called with; later processes load it.
kernel = numba.njit(cache=True, error_model="numpy")
#: For what only kernels call: it becomes part of them.
inline = numba.njit(error_model="numpy")
