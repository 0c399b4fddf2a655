"""All files of an accelerator, as text."""

from typing import TYPE_CHECKING

from hw.config import AdaGPConfig
from hw.primitives.shared_module import emit_verilog

from .c_header import c_header
from .manifest import PortTable, manifest, port_table
from .ports import top_ports
from .register_docs import register_markdown, register_rdl

if TYPE_CHECKING:
    from hw.accelerator import Accelerator

__all__ = ["accelerator_verilog", "generate", "make_top", "top_name"]

_CORE_FILE = """\
CAPI=2:

name: adagp:accelerators:{top}:0.1.0
description: ADA-GP training accelerator, variant {variant}, configuration {hash}

filesets:
  rtl:
    files:
      - {top}.v
    file_type: verilogSource
  headers:
    files:
      - adagp_regs.h
    file_type: user

targets:
  default:
    filesets: [rtl]
    toplevel: {top}
  software:
    filesets: [headers]
    toplevel: {top}
  lint:
    default_tool: verilator
    filesets: [rtl]
    toplevel: {top}
    tools:
      verilator:
        mode: lint-only
        verilator_options: [-Wall]
"""


def make_top(config: AdaGPConfig) -> "Accelerator":
    """Return the top component of a configuration."""
    from hw.accelerator import Accelerator

    return Accelerator(config)


def top_name(config: AdaGPConfig) -> str:
    """Name of the top module and of its file."""
    return f"adagp_{config.variant}"


def accelerator_verilog(config: AdaGPConfig, *, sources: bool = False) -> tuple[str, PortTable]:
    """Return the Verilog text and the ports of the whole accelerator.

    With ``sources`` the text names the Python that it comes from, see
    :func:`~hw.primitives.shared_module.emit_verilog`.

    Returns
    -------
    tuple of text and mapping
        of the port names to (direction, bits), clock ``clk`` and reset ``rst`` included
    """
    top = make_top(config)
    ports = top_ports(top)
    text = emit_verilog(
        top, name=top_name(config), ports=ports, technology=config.technology, sources=sources
    )
    return text, port_table(ports)


def generate(config: AdaGPConfig) -> dict[str, str]:
    """Return file name -> text of everything that belongs to a configuration.

    The result depends on the configuration and the versions of the tools only.
    """
    top = top_name(config)
    verilog, ports = accelerator_verilog(config)
    files = {
        f"{top}.v": verilog,
        "adagp_regs.h": c_header(config),
        "adagp.rdl": register_rdl(config),
        "registers.md": register_markdown(config),
        f"{top}.core": _CORE_FILE.format(top=top, variant=config.variant, hash=config.hash),
    }
    files["manifest.json"] = manifest(config, top=top, ports=ports, files=files)
    return files
