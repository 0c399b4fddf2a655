"""The simulated board as a process: bytes to and from its serial line, and what its chip says."""

import contextlib
import struct
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from boards.catalogue import Board
from boards.soc.pll import pll_settings
from boards.soc.sdram.timing import fault
from boards.soc.system import SystemConfig
from boards.soc.top import Ulx3sTop
from hw.primitives.shared_module import emit_verilog
from verif.sim import runner
from verif.sim.technology import MODELS

from .program import IO_MODELS, chip_times, compile_program

__all__ = ["BoardProcess", "compile_board", "compile_top", "violations"]

_PLL_MODEL = IO_MODELS.with_name("ehxplll.v")


def violations(count: int | str) -> str:
    """How many rules of a chip were broken, as the C++ model says it."""
    return f"{count} violation" + ("" if int(count) == 1 else "s")


def compile_board(board: Board, config: SystemConfig, *, broken: str = "") -> Path:
    """The program that simulates a board, or find it compiled.

    ``broken``: of :data:`boards.soc.sdram.timing.FAULTS`: controller and chip do not fit. Raises
    BuildFailed.
    """
    made_for, chip = fault(config.chip, broken)
    config = replace(config, chip=made_for)
    settings = pll_settings(board.input_mhz, config.clock_mhz, config.ratio)
    top = Ulx3sTop(config, settings)
    text = emit_verilog(top, name=board.name, ports=top.pins, technology="ecp5")
    design = runner.build(
        text, toplevel=board.name, files=[IO_MODELS, _PLL_MODEL, *MODELS["ecp5"]],
        extra_args=["--pins-inout-enables"],
    )  # fmt: skip
    names = {"PLL_FAST": "fast", "PLL_SLOW": "slow", "PLL_LOCKED": "locked"}
    inside = {macro: f"{board.name}__DOT__pll__DOT__{name}" for macro, name in names.items()}
    # Light 1, see boards/soc/top.py.
    inside["INTERRUPT"] = "(top.led >> 1 & 1)"
    return compile_top(design, replace(config, chip=chip), inside)


def compile_top(design: runner.Build, config: SystemConfig, names: dict[str, str]) -> Path:
    """The program for a verilated top module with the pins of a board: ``names`` of what
    ``board.cpp`` drives -> those in the module."""
    times = chip_times(
        config.sdram, RATIO=config.ratio,
        CYCLES_PER_1000_BITS=round(1000 * config.clock_hz / config.baud),
    )  # fmt: skip
    times += "".join(f"#define {name} {value}\n" for name, value in names.items())
    return compile_program(design, "board.cpp", {"chip_times.h": times})


class BoardProcess:
    """A running simulation; a context manager. It is a
    :class:`~runtime.serial_link.Line`.

    Time passes only while something is asked of it, so that runs repeat to the cycle.
    """

    #: Cycles of the accelerator to wait for an answer.
    PATIENCE_CYCLES = 1_000_000

    def __init__(self, program: Path, *, clock_hz: int):
        self._clock_hz = clock_hz
        self._closing = contextlib.ExitStack()
        errors = self._closing.enter_context(tempfile.TemporaryFile())
        self._errors = errors
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
        self._closing.callback(self._end)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _end(self):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def close(self) -> None:
        """End the simulation. A second time nothing happens."""
        self._closing.close()

    def _ask(self, request: bytes) -> bytes:
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            header = self._process.stdout.read(4)
            if len(header) == 4:
                (size,) = struct.unpack("<I", header)
                return self._process.stdout.read(size)
        except BrokenPipeError:
            pass
        status = self._process.wait()
        self._errors.seek(0)
        raise RuntimeError(
            f"the simulated board has ended with status {status}: {self._errors.read().decode()}"
        )

    def transfer(
        self, data: bytes, expected: int, *, patience_cycles: int = PATIENCE_CYCLES
    ) -> bytes:
        """Send ``data``, then receive ``expected`` bytes, or those that have come
        ``patience_cycles`` after the last one sent."""
        head = struct.pack("<cI", b"X", len(data))
        return self._ask(head + data + struct.pack("<IQ", expected, patience_cycles))

    def pause(self, seconds: float) -> None:
        """Let so much of the board's time pass."""
        self._ask(struct.pack("<cQ", b"R", round(seconds * self._clock_hz)))

    def status(self) -> dict[str, str]:
        """``cycles`` of the accelerator, ``violations`` of the chip's rules, ``refreshes``,
        ``transfers`` of 16 bits, ``framing_errors`` of the line, ``interrupts`` (the cycles in
        which one came, separated by spaces), and ``text`` about violations."""
        lines = self._ask(b"S").decode().splitlines()
        return {name: text for name, _, text in (line.partition(" ") for line in lines)}

    def put(self, address: int, data: bytes) -> None:
        """Put bytes into the chip as if a host had written them long ago: no time passes."""
        self._ask(struct.pack("<cII", b"P", address, len(data)) + data)

    def get(self, address: int, size: int) -> bytes:
        """Bytes of the chip, without a host and without time."""
        return self._ask(struct.pack("<cII", b"G", address, size))
