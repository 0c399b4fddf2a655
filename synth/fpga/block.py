"""``python -m synth block``: area and Fmax of a block of the accelerator by itself."""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hw.config import AdaGPConfig
from hw.config.selection import DEFAULT_PRESET, add_settings
from hw.control.fetch import CommandFetch
from hw.control.loop_control import LoopControl
from hw.dma.load import LoadEngine
from hw.engines.loss.engine import LossEngine
from hw.engines.vector.engine import VectorEngine
from hw.primitives.shared_module import emit_verilog
from synth.common.command_line import (
    check_json,
    make_kept,
    seed_list,
    selected_config,
    work_directory,
    write_json,
)
from synth.common.errors import ToolError
from synth.common.yosys import CellCounts, synthesize_ecp5

from .harness import Harness
from .nextpnr import place_and_route_ecp5

__all__ = ["BLOCKS", "add_arguments", "measure", "run"]

_TARGET_MHZ = 160.0

#: What is built of a configuration, by name; those of the main core.
BLOCKS: dict[str, Callable[[AdaGPConfig], object]] = {
    "fetch": CommandFetch,
    "load": lambda config: LoadEngine(config, config.cores[0]),
    "loops": lambda config: LoopControl(config.row_list_depth),
    "loss": lambda config: LossEngine(config, config.cores[0]),
    "vector": lambda config: VectorEngine(config, config.cores[0]),
}


def measure(
    name: str, config: AdaGPConfig, *, seeds: tuple[int, ...], directory: Path, progress=print
) -> tuple[CellCounts, dict[int, float]]:
    """Cells of a block of :data:`BLOCKS`, and by seed its Fmax in MHz between registers.

    Raises :class:`ToolError` for trouble with a tool, and if the configuration has no such block.
    """
    if name in ("loss", "vector") and not config.has_training_engines:
        raise ToolError(
            f"the configuration has no block {name}, which needs training and a float format, not "
            f"training={config.training} and {config.operand_format}"
        )

    def synthesized(wrap, part):
        text = emit_verilog(wrap(BLOCKS[name](config)), name="dut", technology="ecp5")
        return synthesize_ecp5(text, top="dut", name=part, directory=directory)

    progress(f"synthesis of {name} alone")
    alone, fmax = synthesized(lambda block: block, "alone"), {}
    if seeds:
        progress(f"synthesis of {name} between registers")
        synthesized(Harness, "harness")
    for seed in seeds:
        progress(f"place and route, seed {seed} ({len(fmax) + 1} of {len(seeds)})")
        fmax[seed] = place_and_route_ecp5(
            "harness", seed=seed, target_mhz=_TARGET_MHZ, directory=directory
        )
    return alone, fmax


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("block", choices=tuple(BLOCKS), help="of the main core, or all have it")
    parser.add_argument("--variant", default="baseline", help="(default: %(default)s)")
    parser.add_argument("--preset", default=DEFAULT_PRESET, help="(default: %(default)s)")
    add_settings(parser)
    parser.add_argument(
        "--seeds", type=seed_list, default=(1, 2, 3), help="of place and route (1,2,3); '' for none"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep netlists and logs there")


def run(arguments: argparse.Namespace) -> None:
    config = selected_config(arguments)
    check_json(arguments.json)
    make_kept(arguments.keep)
    with (
        work_directory(arguments.keep, prefix="synth-") as directory,
        Console(stderr=True).status("starting") as status,
    ):
        alone, fmax = measure(
            arguments.block, config, seeds=arguments.seeds, directory=directory,
            progress=status.update,
        )  # fmt: skip
    title = f"{arguments.block} of {config.variant}, configuration {config.hash}, synth_ecp5"
    table = Table(title=title, caption="LUT4eq = LUT4 + 2 CCU2C. Fmax between registers: "
                  "nextpnr-ecp5, LFE5U-85F, speed grade 6")  # fmt: skip
    cells = {"LUT4": alone.lut4, "CCU2C": alone.ccu2c, "LUT4eq": alone.lut4eq,
             "FF": alone.ff, "MULT18X18D": alone.mult18}  # fmt: skip
    cells |= {f"seed {seed}": f"{mhz:.1f} MHz" for seed, mhz in fmax.items()}
    for heading in cells:
        table.add_column(heading, justify="right")
    table.add_row(*map(str, cells.values()))
    Console().print(table)
    figures = {"block": arguments.block, "variant": config.variant, "configuration": config.hash,
               "area": asdict(alone) | {"lut4eq": alone.lut4eq},
               "fmax_mhz": {str(seed): mhz for seed, mhz in fmax.items()}}  # fmt: skip
    write_json(arguments.json, figures)
