"""``python -m boards roofline``: which array which memory feeds."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from boards.catalogue import BOARDS, Board, BoardError
from boards.options import add_system, board_of, system_of, whole
from boards.soc.sdram.timing import SdramCycles
from boards.soc.system import SystemConfig
from cli.atomic_files import replacing
from cli.build_directory import build_root
from cli.consoles import table_console
from runtime.serial_device import SerialDevice
from verif.system.device import RtlDevice

from .memory_test import memory_test
from .networks import prepare_network
from .simulator import BoardProcess, compile_board

__all__ = ["Point", "add_arguments", "draw", "measure", "memory_rates", "run"]

#: Arrays that are measured unless others are named: those of the board's preset and next to it.
_ARRAYS = ((4, 4), (4, 8), (8, 8))
#: Bursts of the stream of which a memory's rate is measured.
_REQUESTS = 5_000


@dataclass(frozen=True, kw_only=True)
class Point:
    """A batch of digits, learned on one array.

    Members
    -------
    macs, moved : multiplications, and bytes read and written
    ideal, cycles : with a memory that answers at once, and with the SDRAM at the board's pins
    wrong : numbers that differ from golden, in both
    """

    rows: int
    columns: int
    macs: int
    moved: int
    ideal: int
    cycles: int
    wrong: int

    @property
    def intensity(self) -> float:
        """Multiplications for each byte."""
        return self.macs / self.moved

    @property
    def peak(self) -> int:
        """Multiplications in a cycle, at most."""
        return self.rows * self.columns


class _PastThePins(SerialDevice):
    """A simulated board whose memory is written and read past its pins, in no time."""

    def __init__(self, config, memory_bytes, *, line: BoardProcess):
        super().__init__(config, memory_bytes, line=line)
        self._process = line

    def put(self, address, data):
        self._check(address, len(data))
        self._process.put(address, bytes(data))

    def get(self, address, size):
        self._check(address, size)
        return self._process.get(address, size)


def measure(board: Board, config: SystemConfig, *, images: int, seed: int = 1) -> Point:
    """Learn one batch with ideal memory, and on the simulated board. Raises BuildFailed, and
    RuntimeError where the SDRAM's rules are broken."""
    accelerator = config.accelerator
    network = prepare_network("train-digits", accelerator, images=images, batches=1, seed=seed)
    device = RtlDevice(accelerator, network.window_bytes)
    try:
        ideal = network.run(device)
    finally:
        device.close()
    with BoardProcess(compile_board(board, config), clock_hz=config.clock_hz) as process:
        found = network.run(_PastThePins(accelerator, network.window_bytes, line=process))
        if text := process.status().get("text"):
            raise RuntimeError(text)
    return Point(
        rows=accelerator.rows, columns=accelerator.columns, macs=network.macs, moved=ideal.moved,
        ideal=sum(ideal.cycles), cycles=sum(found.cycles), wrong=ideal.wrong + found.wrong,
    )  # fmt: skip


def memory_rates(config: SystemConfig) -> dict[int, float]:
    """SDRAM cycles in one of the accelerator (``--ratio``) -> measured bytes of a stream in a cycle
    of the accelerator."""
    rates = {}
    for ratio in (1, 2):
        cycles = SdramCycles(chip=config.chip, clock_mhz=config.clock_mhz * ratio)
        found = memory_test(
            config.chip, clock_mhz=cycles.clock_mhz, ratio=ratio,
            data_width=config.accelerator.axi_data_width, kind="stream", requests=_REQUESTS, seed=1,
        )  # fmt: skip
        rates[ratio] = found.rate * ratio
    return rates


def draw(points: list[Point], rates: dict[int, float], config: SystemConfig, path: Path) -> None:
    """Multiplications per second over those per byte; hollow with ideal memory, filled on the
    board."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    scale = config.clock_mhz
    low, high = (f(p.intensity for p in points) for f in (min, max))
    span = np.geomspace(low / 6, high * 6, 200)
    top = max(point.peak for point in points)
    for ratio, rate in rates.items():
        own = ratio == config.ratio
        name = f"SDRAM at {ratio} x {config.clock_mhz:g} MHz: {rate * scale:.0f} MB/s"
        axes.plot(span, np.minimum(top * 1.6, span * rate) * scale, color="black",
                  lw=1.6 if own else 0.8, ls="-" if own else "--", label=name)  # fmt: skip
    for number, point in enumerate(points):
        colour = f"C{number}"
        name = f"{point.rows} x {point.columns}"
        axes.axhline(point.peak * scale, color=colour, lw=1, label=f"{name} PEs, at most")
        for cycles, fill in ((point.ideal, "none"), (point.cycles, colour)):
            axes.plot(point.intensity, point.macs / cycles * scale, "o", color=colour, mfc=fill)
    axes.plot([], [], "o", color="0.3", mfc="none", label="digits, ideal memory")
    axes.plot([], [], "o", color="0.3", label="digits, on the board")
    least = min(point.macs / point.cycles for point in points) / 3
    axes.set(xscale="log", yscale="log", xlabel="multiplications per byte",
             ylabel="million multiplications per second",
             ylim=(least * scale, top * 1.6 * scale))  # fmt: skip
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8, loc="lower right")
    with replacing(path) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)


def _array(text):
    try:
        rows, columns = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be like 4x8, not {text!r}") from None
    return rows, columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: python -m boards roofline ulx3s --array 4x4 --array 4x8"
    add = parser.add_argument
    add("board", help=f"one of {', '.join(BOARDS)}")
    add("--array", type=_array, action="append", metavar="ROWSxCOLUMNS",
        help="of PEs; may be repeated (4x4, 4x8, 8x8)")  # fmt: skip
    add("--images", type=whole(1), default=16, help="in a batch (16)")
    add_system(parser)
    add("-o", "--output", type=Path, metavar="FILE.png",
        help="default: build/boards/roofline.png")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0 if golden has computed the same, 1 if not."""
    board, points = board_of(arguments), []
    console = table_console(120)
    output = arguments.output or build_root() / "boards" / "roofline.png"
    given = arguments.settings
    for rows, columns in arguments.array or _ARRAYS:
        arguments.settings = [*given, f"rows={rows}", f"columns={columns}"]
        config = system_of(board, arguments)
        try:
            points.append(measure(board, config, images=arguments.images))
        except ValueError as error:
            raise BoardError(str(error)) from None
    rates = memory_rates(config)
    table = Table(title=f"a batch of {arguments.images} digits, {config.clock_mhz:g} MHz")
    headings = ("PEs", "million MACs", "MB moved", "MACs per byte", "cycles, ideal memory",
                "needs MB/s", "cycles, on the board", "ratio", "MACs per PE and cycle")  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right")
    for p in points:
        table.add_row(
            f"{p.rows} x {p.columns}", f"{p.macs / 1e6:.2f}", f"{p.moved / 1e6:.2f}",
            f"{p.intensity:.2f}", f"{p.ideal:,}", f"{p.moved / p.ideal * config.clock_mhz:.0f}",
            f"{p.cycles:,}", f"{p.cycles / p.ideal:.3f}", f"{p.macs / p.cycles / p.peak:.3f}",
        )  # fmt: skip
    console.print(table)
    for ratio, rate in rates.items():
        console.print(
            f"SDRAM at {ratio} x {config.clock_mhz:g} MHz: a stream moves "
            f"{rate * config.clock_mhz:.0f} MB/s, {2 * ratio * config.clock_mhz:.0f} at most"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    draw(points, rates, config, output)
    console.print(f"wrote {output}, {output.stat().st_size:,} bytes", soft_wrap=True)
    return 1 if any(point.wrong for point in points) else 0
