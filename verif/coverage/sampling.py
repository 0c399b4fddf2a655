"""What the monitor's log (:mod:`verif.coverage.monitor`) says, as functional points."""

from collections.abc import Iterable

from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, decode
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit

from .bins import command_points, error_point, wait_points
from .points import Point

__all__ = ["sample"]


def sample(config: AdaGPConfig, lines: Iterable[str]) -> dict[Point, int]:
    """Count how often each point was reached.

    Commands count when their run has ended by itself and without an error. A wait counts once for
    a simulation.

    Raises
    ------
    ValueError
        naming a line that is no event of the monitor.
    """
    counts: dict[Point, int] = {}
    held, commands, failed = wait_points(config), [], False
    known: dict[str, set[Point]] = {}

    def reach(points):
        for point in points:
            counts[point] = counts.get(point, 0) + 1

    def reached_by(word):
        if word not in known:
            opcode, fields = decode(int(word, 16).to_bytes(COMMAND_BYTES, "little"))
            known[word] = command_points(config, opcode, fields)
        return known[word]

    for number, line in enumerate(lines, 1):
        event, *values = line.split()
        try:
            if event in ("B", "R", "S"):
                commands, failed = [], False
            elif event == "C":
                commands.append(values[0])
            elif event == "W":
                reach([held[int(values[0])]])
            elif event == "E":
                failed = True
                reach([error_point(config, ErrorCode(int(values[0])), Unit(int(values[1])))])
            elif event == "F":
                for word in [] if failed else commands:
                    reach(reached_by(word))
                commands = []
            else:
                raise ValueError("unknown event")
        except (ValueError, IndexError) as error:
            raise ValueError(f"line {number} of the monitor's log, {line!r}: {error}") from None
    return counts
