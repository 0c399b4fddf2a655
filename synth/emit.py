"""The Verilog of a configuration, written once per process."""

import dataclasses
import functools

from rtl_gen.generate import accelerator_verilog

__all__ = ["emitted_verilog"]


@functools.lru_cache(maxsize=8)
def emitted_verilog(config, technology: str = "generic") -> str:
    """Text of the accelerator; ``technology`` as in :func:`hw.shared.emit_verilog`.

    It takes the place of the configuration's own.
    """
    text, _ports = accelerator_verilog(dataclasses.replace(config, technology=technology))
    return text
