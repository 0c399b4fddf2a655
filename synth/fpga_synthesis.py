"""Mapping of a whole design to an FPGA family, module by module, and its netlist for routing."""

import gzip
import json
import shutil
from pathlib import Path

from .errors import ToolError
from .harness import harness_verilog
from .hierarchy import block_counts, kept_modules, read_statistics
from .yosys import run_yosys

__all__ = ["METHOD", "link", "pack", "synthesize", "unpack"]

#: Changes with the way in which designs are mapped; part of every key of the result cache.
METHOD = 1

_LEGALISE = (
    "dfflegalize -cell $_DFF_?_ 01 -cell $_DFF_?P?_ r -cell $_SDFF_?P?_ r -cell $_DFFE_??_ 01 "
    "-cell $_DFFE_?P??_ r -cell $_SDFFE_?P??_ r -minsrst {family.min_reset} "
    "-mince {family.min_enable}"
)


def synthesize(verilog: str, *, top: str, family, directory: Path, flat: bool = False) -> dict:
    """Map module ``top`` of ``verilog`` to the cells of ``family``.

    Unless ``flat``, the blocks of :func:`~synth.hierarchy.kept_modules` are mapped one by one,
    each once however many instances it has; only constants and unused ports cross their borders.

    Writes ``design.v``, ``design.stat``, ``design.log`` and the netlist ``design.json`` into
    ``directory``. Returns block -> cell type -> count. Raises :class:`ToolError`.
    """
    (directory / "design.v").write_text(verilog)
    statistics = directory / "design.stat"
    statistics.unlink(missing_ok=True)
    kept = [] if flat else kept_modules(verilog, top)
    command = f"{family.synthesis} {family.no_pads} -top {top}"
    steps = [f"{command} -run :map_luts"]
    if family.min_reset or family.min_enable:
        legalise = _LEGALISE.format(family=family)
        steps = [f"{command} -run :map_ffs", legalise, "opt_merge", "opt_clean"]
        steps.append(f"{command} -run map_ffs:map_luts")
    # Else abc9 may give two wires of a module with submodules one name, and fail.
    steps += ["splitnets", f"{command} -run map_luts:"]
    passes = (
        "read_verilog design.v",
        f"hierarchy -top {top}",
        *(f"setattr -mod -set keep_hierarchy 1 {name}" for name in kept),
        # Constants and unused ports may cross the borders of modules.
        *(("proc", "opt_clean", "opt_hier", "opt_expr", "opt_hier") if kept else ()),
        *steps,
        "tee -q -o design.stat stat -json",
        "write_json design.json",
    )
    run_yosys(passes, name="design", directory=directory)
    if not statistics.exists():
        raise ToolError(f"Yosys failed: no statistics (log: {directory / 'design.log'})")
    blocks = block_counts(read_statistics(statistics.read_text()), top)
    return {block: dict(counts) for block, counts in blocks.items()}


def link(*, top: str, family, directory: Path) -> None:
    """Put ``design.json`` in a harness and flatten it: ``harness.json`` in ``directory``.

    The harness has four pins, whatever the ports of the design. Raises :class:`ToolError`.
    """
    try:
        ports = json.loads((directory / "design.json").read_text())["modules"][top]["ports"]
    except (OSError, ValueError, KeyError) as error:
        raise ToolError(f"The netlist of Yosys cannot be read: {error!r}") from None
    shape = {name: (port["direction"], len(port["bits"])) for name, port in ports.items()}
    (directory / "harness.v").write_text(harness_verilog(shape, top=top, name="harness"))
    passes = (
        "read_verilog harness.v",
        f"{family.synthesis} -top harness",
        # The cells of the library come again with the netlist.
        "delete =A:blackbox",
        "read_json design.json",
        "setattr -mod -unset keep_hierarchy A:keep_hierarchy",
        "hierarchy -top harness",
        "flatten",
        "clean",
        "write_json harness.json",
    )
    run_yosys(passes, name="harness", directory=directory)


def pack(source: Path, target: Path) -> None:
    """Compressed copy of a netlist; the target appears complete or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{id(target):x}.part")
    with source.open("rb") as reader, gzip.open(partial, "wb", compresslevel=3) as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
    partial.replace(target)


def unpack(source: Path, target: Path) -> None:
    with gzip.open(source, "rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
