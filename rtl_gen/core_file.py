"""The FuseSoC core file."""

from hw.config import AdaGPConfig

from .testbench import TESTBENCH_SOURCES, has_testbench

__all__ = ["core_file"]

_HEAD = """\
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
"""
_TESTBENCH = """\
  testbench:
    files:
      - adagp_testbench.vh: {{is_include_file: true}}
{sources}
    file_type: verilogSource
  memory:
    files:
      - memory.hex: {{copyto: memory.hex}}
      - expected.hex: {{copyto: expected.hex}}
    file_type: user
"""
_TARGETS = """
targets:
  default:
    filesets: [rtl]
    toplevel: {top}
  software:
    filesets: [headers]
    toplevel: {top}
  lint:
    filesets: [rtl]
    toplevel: {top}
    flow: lint
    flow_options:
      tool: verilator
      verilator_options: [-Wall]
"""
# Icarus Verilog ends with status 1 at $stop with -N only; Verilator does so always.
_SIMULATION = """\
  sim: &sim
    filesets: [rtl, testbench, memory]
    toplevel: testbench
    flow: sim
    flow_options:
      tool: icarus
      iverilog_options: [-g2012]
      vvp_options: [-N]
  sim_verilator:
    <<: *sim
    flow_options:
      tool: verilator
      mode: binary
      verilator_options: [--timing, -CFLAGS, -std=c++20]
"""


def core_file(config: AdaGPConfig, *, top: str) -> str:
    """Its text. The targets ``sim`` (Icarus Verilog, or what ``--tool`` says) and
    ``sim_verilator`` run the testbench, where there is one
    (:func:`~rtl_gen.testbench.has_testbench`)."""
    parts = [_HEAD, _TARGETS]
    if has_testbench(config):
        parts = [_HEAD, _TESTBENCH, _TARGETS, _SIMULATION]
    sources = "\n".join(f"      - {name}" for name in TESTBENCH_SOURCES)
    values = {"top": top, "variant": config.variant, "hash": config.hash, "sources": sources}
    return "".join(parts).format(**values)
