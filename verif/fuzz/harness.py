"""The compiled harness: how it is built, and the pipe to it."""

import hashlib
import os
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hw.config import AdaGPConfig
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit, register_map
from verif.sim import environment, runner
from verif.sim.instrument import current
from verif.sim.results import tail
from verif.system import accelerator

from .good import Good
from .tables import GOOD_FIELDS, tables

__all__ = ["Finding", "Harness", "Outcome", "Program", "build"]

_SOURCES = Path(__file__).parent / "cpp"


@dataclass(frozen=True, kw_only=True)
class Program:
    """A compiled harness with the good programs that it runs.

    Members
    -------
    executable, good_file : paths
    goods : tuple of :class:`~verif.fuzz.good.Good`
    """

    config: AdaGPConfig
    executable: Path
    good_file: Path
    goods: tuple


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a case without a finding ended.

    Members
    -------
    end : "HALT", "STOP", "RESET", name of an error code, or "" if only the good program ran
    unit : that reported the error
    commands : executed by the program under test
    cycles, good_cycles, all_cycles : of that program, of the good one, of the whole case
    """

    end: str
    unit: str
    commands: int
    cycles: int
    good_cycles: int
    all_cycles: int


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is wrong: ``kind``, one word for each cause, and a sentence."""

    kind: str
    text: str
    cycles: int = 0


def build(
    config: AdaGPConfig, goods: tuple[Good, ...], *, waves: bool = False, simulator=None
) -> Program:
    """Compile the harness around the simulated accelerator, or find it compiled.

    The accelerator is that of :mod:`verif.system.accelerator`, so that its model is compiled once
    for everybody; the harness itself takes a second.

    Raises
    ------
    BuildFailed
        Verilator or the C++ compiler failed.
    """
    design = (simulator or accelerator.build(config, waves=waves)).design
    header = tables(config)
    sources = {path.name: path.read_text() for path in sorted(_SOURCES.iterdir())}
    content = repr((sources, header, environment.tool_versions()))
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    executable = design.directory / f"fuzz-{key}"
    if not executable.is_file():
        _compile(design, header, executable)
    return Program(
        config=config, executable=executable, good_file=_write(design, goods), goods=goods
    )


def _compile(design, header, executable):
    """Each process into a file of its own, which then takes its place."""
    include = environment.verilator_root() / "include"
    objects = sorted(design.directory.glob("verilated*.o"))
    counts = any(path.stem == "verilated_cov" for path in objects)
    with tempfile.TemporaryDirectory(dir=design.directory) as folder:
        (Path(folder) / "tables.h").write_text(header)
        result = Path(folder) / "fuzz"
        command = [
            os.environ.get("CXX", "g++"), "-std=c++17", "-O2", "-faligned-new",
            f"-DVM_TRACE={int(design.waves)}", f"-DVM_COVERAGE={int(counts)}", "-Wno-attributes",
            *(f"-I{path}" for path in (folder, _SOURCES, design.directory, include,
                                       include / "vltstd")),
            str(_SOURCES / "main.cpp"), str(design.directory / "Vtop__ALL.a"),
            *map(str, objects), "-pthread", "-o", str(result),
        ]  # fmt: skip
        done = subprocess.run(
            command, env=environment.tool_environment(), capture_output=True, text=True
        )
        if done.returncode:
            raise runner.BuildFailed(f"the fuzz harness does not compile\n{tail(done.stderr)}")
        os.replace(result, executable)


def _write(design, goods):
    """The good programs as a file, named after its contents."""
    parts = []
    for good in goods:
        numbers = [getattr(good, name) for name in GOOD_FIELDS]
        flat = [number for pair in good.registers for number in pair]
        parts += [
            struct.pack(f"<{len(numbers)}Q", *numbers),
            struct.pack(f"<Q{len(flat)}I", len(good.registers), *flat),
            struct.pack("<Q", len(good.image)), good.image,
            struct.pack("<Q", len(good.after)), good.after,
        ]  # fmt: skip
    data = b"".join(parts)
    path = design.directory / f"good-{hashlib.sha256(data).hexdigest()[:16]}.bin"
    if not path.is_file():
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(data)
        os.replace(temporary, path)
    return path


class Harness:
    """A running harness; a context manager, as it is a process. At the end the tool of
    :func:`~verif.sim.instrument.instrumented`, if there is one, sees what it leaves."""

    def __init__(self, program: Program, *, waves: Path | None = None):
        self.program = program
        registers = register_map(program.config)
        self._stopped = next(
            (field.mask for field in registers["STATUS"].fields if field.name == "STOPPED"), 0
        )
        command = [str(program.executable), str(program.good_file)]
        self._errors = tempfile.TemporaryFile()
        self._directory = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [*command, *([str(waves.resolve())] if waves else [])], cwd=self._directory.name,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self._errors.close()
        if (tool := current()) is not None:
            tool.collect(self.program.executable.parent, Path(self._directory.name))
        self._directory.cleanup()

    def send(self, cases) -> None:
        """Give cases to it; results come in the same order. What it has to say fits into the pipe
        for some hundred cases."""
        try:
            self.process.stdin.write(b"".join(case.packed() for case in cases))
            self.process.stdin.flush()
        except BrokenPipeError:
            self._died()

    def receive(self) -> Outcome | Finding:
        """The result of the next case."""
        line = self.process.stdout.readline().decode()
        if not line:
            self._died()
        if line[:2] not in ("R ", "F "):
            self._died(line)
        mark, _number, rest = line.rstrip("\n").split(" ", 2)
        if mark == "F":
            kind, cycles, text = rest.split(" ", 2)
            return Finding(kind=kind, text=text, cycles=int(cycles))
        status, code, unit, commands, reset, *cycles = map(int, rest.split())
        if not status and not reset:
            end = ""
        elif reset:
            end = "RESET"
        elif code:
            end = ErrorCode(code).name
        else:
            end = "STOP" if status & self._stopped else "HALT"
        return Outcome(
            end=end, unit=Unit(unit).name, commands=commands,
            cycles=cycles[0], good_cycles=cycles[1], all_cycles=cycles[2],
        )  # fmt: skip

    def run(self, cases) -> list:
        """Results of all cases, one after the other."""
        results = []
        for case in cases:
            self.send([case])
            results.append(self.receive())
        return results

    def _died(self, line=""):
        """A line that is no result, or none, tells that it has crashed."""
        self.process.stdin.close()
        self.process.wait()
        self._errors.seek(0)
        raise runner.BuildFailed(
            f"the fuzz harness ended with status {self.process.returncode}: "
            f"{line}{tail(self._errors.read().decode(errors='replace'))}"
        )
