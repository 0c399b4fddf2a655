"""Command line of the synthesis reports: ``python -m synth <report>``."""

from cli.interrupt import end_on_signals

if __name__ == "__main__":
    end_on_signals("synth", "; what was measured is kept")  # before imports that take seconds

import argparse
import sys

from synth.asic import report as asic
from synth.common import wheels
from synth.common.errors import ToolError
from synth.fpga import block, column
from synth.fpga import report as fpga
from synth.sram import report as sram
from synth.study import document_command

#: Name -> (module with ``add_arguments`` and ``run``, one line of help).
REPORTS = {
    "asic": (asic, "area, timing and power in standard cells"),
    "block": (block, "area and Fmax of a block of the accelerator by itself"),
    "column": (column, "area per multiply-accumulate and Fmax of one column of the array"),
    "fpga": (fpga, "a whole accelerator on an FPGA: area, fit, place and route"),
    "report": (
        document_command,
        "all variants side by side, beside the paper: Markdown, JSON, plots",
    ),
    "sram": (sram, "area, energy, leakage and access time of the memories (CACTI)"),
    "fetch": (wheels, "download what comes from wheels: CACTI, a standard-cell library"),
}


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m synth", description="Area, timing and power of the generated hardware."
    )
    reports = parser.add_subparsers(dest="report", required=True, metavar="command")
    for name, (module, text) in REPORTS.items():
        module.add_arguments(reports.add_parser(name, help=text, description=text))
    parsed = parser.parse_args(arguments)
    try:
        REPORTS[parsed.report][0].run(parsed)
    except (ToolError, OSError) as error:
        print(f"python -m synth {parsed.report}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
