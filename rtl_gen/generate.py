"""All files of an accelerator, as text."""

from typing import TYPE_CHECKING

from cli.collector import collector_paused
from hw.config import AdaGPConfig
from hw.primitives.shared_module import emit_verilog

from .c_header import c_header
from .core_file import core_file
from .manifest import PortTable, manifest, port_table
from .ports import top_ports
from .register_docs import register_markdown, register_rdl
from .testbench import TestRun, copy_run, has_testbench, testbench_files

if TYPE_CHECKING:
    from hw.accelerator import Accelerator

__all__ = ["accelerator_verilog", "generate", "make_top", "top_name"]


def make_top(config: AdaGPConfig) -> "Accelerator":
    """Return the top component of a configuration."""
    from hw.accelerator import Accelerator

    return Accelerator(config)


def top_name(config: AdaGPConfig) -> str:
    """Name of the top module and of its file."""
    return f"adagp_{config.variant}"


@collector_paused()
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


def generate(config: AdaGPConfig, run: TestRun | None = None) -> dict[str, str]:
    """Return file name -> text of everything that belongs to a configuration.

    ``run``: what the testbench does, by default :func:`~rtl_gen.testbench.copy_run`. The result
    depends on it, the configuration and the versions of the tools only.
    """
    top = top_name(config)
    verilog, ports = accelerator_verilog(config)
    files = {
        f"{top}.v": verilog,
        "adagp_regs.h": c_header(config),
        "adagp.rdl": register_rdl(config),
        "registers.md": register_markdown(config),
        f"{top}.core": core_file(config, top=top),
    }
    if has_testbench(config):
        files |= testbench_files(config, run or copy_run(config), top=top)
    files["manifest.json"] = manifest(config, top=top, ports=ports, files=files)
    return files
