"""``python -m synth column``: look-up tables per multiply-accumulate and Fmax of one column."""

import argparse
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hw.array.float_column import DotProductColumn
from hw.array.integer_column import IntegerColumn
from hw.array.pe_array import ArrayTiming, PEArray
from hw.formats import FORMATS, format_by_name
from hw.primitives.shared_module import emit_verilog
from synth.common.command_line import check_json, make_kept, seed_list, work_directory, write_json
from synth.common.yosys import CellCounts, synthesize_ecp5

from .harness import Harness
from .nextpnr import place_and_route_ecp5

__all__ = ["ColumnReport", "add_arguments", "measure", "run"]

_TARGET_MHZ = 160.0


@dataclass(frozen=True, kw_only=True)
class ColumnReport:
    """What was measured.

    Members
    -------
    format, lanes, columns, technology : what was built
    bare : cells of the column alone, operands decoded outside
    standalone : cells of an array of one column: its own decoders of operands and weights, weight
        exchange, valid and flag logic
    fmax_mhz : seed -> Fmax after routing of the column between registers
    latency, psum_latency : cycles from operand to result, from partial sum to result
    """

    format: str
    lanes: int
    columns: int
    technology: str
    bare: CellCounts
    standalone: CellCounts
    fmax_mhz: dict[int, float]
    latency: int
    psum_latency: int

    @property
    def standalone_per_mac(self) -> float:
        return self.standalone.lut4eq / self.lanes

    @property
    def shared_per_mac(self) -> float:
        """The column and its share of what an array of ``columns`` columns has once."""
        once = self.standalone.lut4eq - self.bare.lut4eq
        return (self.bare.lut4eq + once / self.columns) / self.lanes

    def fmax_summary_mhz(self) -> dict[str, float]:
        """``min``, ``median`` and ``max`` over the seeds; empty where there are none."""
        values = list(self.fmax_mhz.values())
        if not values:
            return {}
        return {"min": min(values), "median": statistics.median(values), "max": max(values)}

    def as_json(self) -> dict:
        """``area`` has a key for each row of the printed table, ``fmax_mhz`` one for each seed."""

        def cells(counts):
            per_mac = counts.lut4eq / self.lanes
            return {**asdict(counts), "lut4eq": counts.lut4eq, "lut4eq_per_mac": per_mac}

        return {
            "format": self.format,
            "lanes": self.lanes,
            "columns": self.columns,
            "technology": self.technology,
            "area": {
                "alone": cells(self.bare),
                "standalone": cells(self.standalone),
                "in_array": {
                    "lut4eq": self.shared_per_mac * self.lanes,
                    "lut4eq_per_mac": self.shared_per_mac,
                },
            },
            "fmax_mhz": {str(seed): value for seed, value in self.fmax_mhz.items()},
            "fmax_summary_mhz": self.fmax_summary_mhz(),
            "latency_cycles": self.latency,
            "psum_latency_cycles": self.psum_latency,
        }


def measure(
    *, format_name, lanes, columns, seeds, technology, directory, progress=print
) -> ColumnReport:
    """Synthesise, place and route; intermediate files go to ``directory``.

    Raises ``ValueError`` for an unknown format and :class:`ToolError` for trouble with a tool.
    """
    fmt = format_by_name(format_name)
    column_class = DotProductColumn if fmt.is_float else IntegerColumn

    def verilog(component):
        return emit_verilog(component, name="dut", technology=technology)

    progress("synthesis of the column alone")
    bare = synthesize_ecp5(
        verilog(column_class(fmt, lanes)), top="dut", name="column", directory=directory
    )
    progress("synthesis of the column with its decoders")
    standalone = synthesize_ecp5(
        verilog(PEArray(fmt, lanes, 1)), top="dut", name="standalone", directory=directory
    )
    fmax = {}
    if seeds:
        progress("synthesis of the column between registers")
        synthesize_ecp5(
            verilog(Harness(column_class(fmt, lanes))),
            top="dut",
            name="harness",
            directory=directory,
        )
    for seed in seeds:
        progress(f"place and route, seed {seed} ({len(fmax) + 1} of {len(seeds)})")
        fmax[seed] = place_and_route_ecp5(
            "harness", seed=seed, target_mhz=_TARGET_MHZ, directory=directory
        )
    timing = ArrayTiming(fmt=fmt, rows=lanes)
    return ColumnReport(
        format=format_name,
        lanes=lanes,
        columns=columns,
        technology=technology,
        bare=bare,
        standalone=standalone,
        fmax_mhz=fmax,
        latency=timing.latency,
        psum_latency=timing.latency - timing.psum_offset,
    )


def print_report(report: ColumnReport, console: Console) -> None:
    table = Table(
        title=f"{report.lanes} lanes of {report.format}, yosys synth_ecp5",
        caption="LUT4eq = LUT4 + 2 CCU2C. Alone: decoded operands in, float32 (int32) partial sum "
        "in and result out, special values, flags, two weights per lane. Standalone: from operand "
        "codes, with decoders of its own for operands and weights, valid and weight exchange. "
        f"In an array: the column and 1/{report.columns} of what all columns share.",
    )
    for heading in ("column", "LUT4", "CCU2C", "MULT18X18D", "FF", "LUT4eq", "LUT4eq / MAC"):
        table.add_column(heading, justify="left" if heading == "column" else "right")
    for label, counts in (("alone", report.bare), ("standalone", report.standalone)):
        cells = (counts.lut4, counts.ccu2c, counts.mult18, counts.ff, counts.lut4eq)
        table.add_row(label, *map(str, cells), f"{counts.lut4eq / report.lanes:.1f}")
    table.add_row(
        f"in an array of {report.columns}",
        *[""] * 4,
        f"{report.shared_per_mac * report.lanes:.0f}",
        f"{report.shared_per_mac:.1f}",
    )
    console.print(table)
    if report.fmax_mhz:
        table = Table(title="Fmax, nextpnr-ecp5 LFE5U-85F, speed grade 6, column alone")
        for seed in report.fmax_mhz:
            table.add_column(f"seed {seed}", justify="right")
        summary = report.fmax_summary_mhz()
        for heading in summary:
            table.add_column(heading, justify="right")
        values = (*report.fmax_mhz.values(), *summary.values())
        table.add_row(*(f"{value:.1f} MHz" for value in values))
        console.print(table)
    console.print(
        f"latency {report.latency} cycles from operand, {report.psum_latency} from partial sum; "
        "one vector per cycle"
    )


def _positive(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"must be an integer from 1 to 64, not {text!r}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lanes", type=_positive, default=12, help="products per column (12)")
    parser.add_argument("--format", choices=tuple(FORMATS), default="bf16", help="operands (bf16)")
    parser.add_argument(
        "--seeds", type=seed_list, default=(1, 2, 3), help="of place and route (1,2,3); '' for none"
    )
    parser.add_argument(
        "--columns", type=_positive, default=15, help="columns that share the decoders (15)"
    )
    parser.add_argument(
        "--portable",
        action="store_true",
        help="multipliers as Verilog '*' instead of MULT18X18D with its registers",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep netlists and logs there")


def run(arguments: argparse.Namespace) -> None:
    console = Console()
    check_json(arguments.json)
    make_kept(arguments.keep)
    with (
        work_directory(arguments.keep, prefix="synth-") as directory,
        Console(stderr=True).status("starting") as status,
    ):
        report = measure(
            format_name=arguments.format,
            lanes=arguments.lanes,
            columns=arguments.columns,
            seeds=arguments.seeds,
            technology="generic" if arguments.portable else "ecp5",
            directory=directory,
            progress=status.update,
        )
    print_report(report, console)
    write_json(arguments.json, report.as_json())
