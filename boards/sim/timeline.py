"""``python -m boards timeline``: what serial line and accelerator do, and when."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from boards.catalogue import BOARDS, Board, BoardError
from boards.options import add_system, board_of, system_of, whole
from boards.soc.system import SystemConfig
from cli.atomic_files import replacing
from cli.build_directory import build_root
from hw.registers import host
from hw.registers.map import register_map
from runtime.serial_device import SerialDevice
from verif.system.record import BASE

from .networks import adagp_run, has_ended, start_loop
from .simulator import BoardProcess, compile_board, violations

__all__ = ["Timeline", "add_arguments", "draw", "record", "run"]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One run of many batches; times in cycles of the accelerator, from the first byte on.

    Members
    -------
    buffers : inputs of how many batches the host keeps in memory: 1 or 2
    batches : (phase, begin, end) of each
    link : (what, begin, end) of each transfer: "inputs", or "registers"
    waited : how long the accelerator has waited for inputs, by its own counter
    compared, wrong : numbers that were compared with golden at the end, and that differ
    violations : of the SDRAM's rules
    """

    buffers: int
    batches: list[tuple[str, int, int]]
    link: list[tuple[str, int, int]]
    waited: int
    compared: int
    wrong: int
    violations: int

    @property
    def cycles(self) -> int:
        """Until the last batch is done."""
        return self.batches[-1][2]


class _TimedLine:
    """A line that writes down when it was in use."""

    def __init__(self, process: BoardProcess):
        self._process, self.what = process, "registers"
        self.uses: list[tuple[str, int, int]] = []

    @property
    def cycle(self) -> int:
        return int(self._process.status()["cycles"])

    def transfer(self, data: bytes, expected: int) -> bytes:
        begin = self.cycle
        answer = self._process.transfer(data, expected)
        self.uses.append((self.what, begin, self.cycle))
        return answer

    def pause(self, seconds: float) -> None:
        self._process.pause(seconds)

    def close(self) -> None:
        self._process.close()


def record(
    board: Board, config: SystemConfig, *, buffers: int, images: int, batches: int, seed: int = 1
) -> Timeline:
    """Train on the simulated board, with gradient prediction, in one run.

    The memory is filled past the pins before, and looked at past the pins afterwards: both take
    longer than a few batches, and say nothing of them. Raises BuildFailed, and ValueError for
    numbers of batches that a run cannot have.
    """
    run, loop = adagp_run(config.accelerator, images=images, batches=batches, seed=seed)
    image, refills, registers = bytes(run.memory()), run.refills(), register_map(run.config)
    with BoardProcess(compile_board(board, config), clock_hz=config.clock_hz) as process:
        process.put(BASE, image)
        line = _TimedLine(process)
        device = SerialDevice(config.accelerator, BASE + len(image), line=line)
        origin, ready = line.cycle, []
        line.uses.clear()

        def supply(number):
            line.what = "inputs"
            for offset, data in refills[number]:
                device.put(BASE + offset, data)
            line.what = "registers"
            device.write("BATCHES_READY", number + 1)
            ready.append(line.cycle)

        supply(0)
        start_loop(device, run, loop, len(image))
        # The first batch begins when it is started, not when its inputs are there.
        ready[0] = line.cycle
        done, ended = 0, False
        while not ended:
            # Those of the batch that is computed, and with two buffers those of the next.
            while len(ready) < min(done + buffers, batches):
                supply(len(ready))
            values = device.wait()
            ended = has_ended(registers, values)
            done = values["BATCHES_DONE"]
        status = process.status()
        memory = process.get(BASE, len(image))
    ends = list(map(int, status["interrupts"].split()))
    if len(ends) != batches:
        raise RuntimeError(f"{len(ends)} interrupts for {batches} batches")
    found, compared = run.compare(batches - 1, memory)
    begins = [max(there, before) for there, before in zip(ready, [0, *ends], strict=False)]
    return Timeline(
        buffers=buffers,
        batches=[
            (phase.name, begin - origin, end - origin)
            for phase, begin, end in zip(loop.phases(), begins, ends, strict=True)
        ],
        link=[(what, begin - origin, end - origin) for what, begin, end in line.uses],
        waited=host.counters(registers, values)["BATCH_WAIT"],
        compared=compared,
        wrong=sum(difference.count for difference in found),
        violations=int(status["violations"]),
    )  # fmt: skip


def draw(timelines: list[Timeline], config: SystemConfig, path: Path) -> None:
    """Line and accelerator, one run above the other, in milliseconds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    colours = {"inputs": "tab:gray", "registers": "lightgray", "WARM_UP": "tab:purple",
               "BP": "tab:blue", "GP": "tab:orange"}  # fmt: skip
    names = {"inputs": "inputs of a batch", "registers": "registers", "WARM_UP": "warm-up",
             "BP": "Phase BP", "GP": "Phase GP"}  # fmt: skip
    figure, rows = pyplot.subplots(
        len(timelines), figsize=(11, 1.7 * len(timelines) + 0.8), sharex=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    shown = set()
    for timeline, axes in zip(timelines, rows[:, 0], strict=True):
        for height, spans in ((1, timeline.link), (0, timeline.batches)):
            for what, begin, end in spans:
                shown.add(what)
                axes.broken_barh(
                    [(begin / config.clock_hz * 1e3, (end - begin) / config.clock_hz * 1e3)],
                    (height - 0.4, 0.8), facecolor=colours[what], edgecolor="white",
                    linewidth=0.8 if height == 0 else 0,
                )  # fmt: skip
        for number, (_, begin, end) in enumerate(timeline.batches, 1):
            axes.text((begin + end) / 2 / config.clock_hz * 1e3, 0, str(number), color="white",
                      ha="center", va="center")  # fmt: skip
        axes.set(yticks=[0, 1], yticklabels=["accelerator", "serial line"], ylim=(-0.5, 1.5))
        axes.set_title(f"{_buffers(timeline)}: {len(timeline.batches)} batches in "
                       f"{timeline.cycles / config.clock_hz * 1e3:.0f} ms", loc="left")  # fmt: skip
    rows[-1, 0].set_xlabel("milliseconds")
    figure.legend(
        handles=[Patch(color=colours[what], label=names[what]) for what in names if what in shown],
        loc="outside right center", frameon=False,
    )  # fmt: skip
    with replacing(path) as file:
        figure.savefig(file, dpi=120, format="png")
    pyplot.close(figure)


def _buffers(timeline):
    return {1: "one input buffer", 2: "two input buffers"}[timeline.buffers]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: python -m boards timeline ulx3s -o timeline.png"
    add = parser.add_argument
    add("board", help=f"one of {', '.join(BOARDS)}")
    add("--images", type=whole(1), default=16, help="in a batch (16)")
    add("--batches", type=whole(1), default=8, help="of the run, a multiple of 4 (8)")
    add("--seed", type=whole(0), default=1, help="of network and images (1)")
    add_system(parser, variant="low")
    add("-o", "--output", type=Path, metavar="FILE.png",
        help="default: build/boards/timeline.png")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0 if golden has computed the same, 1 if not."""
    board = board_of(arguments)
    config = system_of(board, arguments, variant="low")
    output = arguments.output or build_root() / "boards" / "timeline.png"
    console, timelines = Console(highlight=False), []
    accelerator = config.accelerator
    console.print(
        f"{board.name}: {accelerator.variant}, {accelerator.rows} x {accelerator.columns} PEs of "
        f"{accelerator.operand_format}, {config.clock_mhz:g} MHz; serial line "
        f"{config.baud:,} bit/s; batches of {arguments.images}",
        soft_wrap=True,
    )
    for buffers in (1, 2):
        try:
            timeline = record(
                board, config, buffers=buffers, images=arguments.images,
                batches=arguments.batches, seed=arguments.seed,
            )  # fmt: skip
        except ValueError as error:
            raise BoardError(str(error)) from None
        timelines.append(timeline)
        milliseconds = 1e3 / config.clock_hz
        console.print(
            f"{_buffers(timeline)}: {timeline.cycles * milliseconds:.1f} ms, of which the "
            f"accelerator waits {timeline.waited * milliseconds:.1f} ms; {timeline.wrong} of "
            f"{timeline.compared:,} numbers differ from golden, {violations(timeline.violations)}",
            soft_wrap=True,
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    draw(timelines, config, output)
    console.print(f"wrote {output}, {output.stat().st_size:,} bytes", soft_wrap=True)
    return 1 if any(timeline.wrong or timeline.violations for timeline in timelines) else 0
