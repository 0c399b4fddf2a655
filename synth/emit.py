"""The Verilog of a configuration, written once per process."""

import functools

from hw.shared import emit_verilog
from rtl_gen.generate import make_top, top_name
from rtl_gen.ports import top_ports

__all__ = ["emitted_verilog"]


@functools.lru_cache(maxsize=8)
def emitted_verilog(config, technology: str | None = None) -> str:
    """Text of the accelerator; ``technology`` as in :func:`hw.shared.emit_verilog`.

    Without a technology it is what ``python -m rtl_gen`` writes.
    """
    top = make_top(config)
    return emit_verilog(top, name=top_name(config), ports=top_ports(top), technology=technology)
