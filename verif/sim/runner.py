"""Build a design with Verilator and run cocotb tests on it.

Two steps, each usable alone::

    build = runner.build(verilog_text, toplevel="fifo")
    result = runner.run(build, "verif.fifo_bench", seed=7)

A build is cached under ``build/sim/<toplevel>-<hash>/``; the hash covers sources, flags and tool
versions. Parallel processes may ask for the same build: one makes it, the others wait.

A run never passes by accident: a failing test, a crash of the simulator, a requested test that
does not exist and a module without tests all raise :class:`SimulationFailed`.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cocotb_tools import config as cocotb_config

from hw.primitives.shared_module import emit_verilog

from . import environment
from .instrument import current
from .results import Result, SimulationFailed, TestOutcome, judge, parse_results, tail

__all__ = [
    "Build",
    "BuildFailed",
    "Result",
    "SimulationFailed",
    "TestOutcome",
    "build",
    "run",
    "verilog",
]

DEFAULT_SEED = 1
"""Seed of a run that names none; every failure message repeats the one that was used."""

_COMPLETE = ".complete"
_KEPT_RUN_SECONDS = 24 * 3600.0
#: Of generated C++, about: with fewer, files spend their time on headers.
_OPERATIONS_IN_A_FILE = 100_000


class BuildFailed(Exception):
    """Verilator or the C++ compiler refused the design; the message ends in the log's tail."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """A compiled simulation.

    Members
    -------
    toplevel : str
        Name of the simulated top module.
    directory : Path
        Holds the executable, the Verilog sources and ``build.log``.
    executable : Path
        The simulator.
    waves : bool
        Whether runs can leave waveforms.
    cached : bool
        True when an earlier build was found, False when this call compiled.
    seconds : float
        Wall time of this call, in seconds, waiting for another process included.
    """

    toplevel: str
    directory: Path
    executable: Path
    waves: bool
    cached: bool
    seconds: float

    @property
    def log(self) -> str:
        """Output of Verilator and the compiler, warnings included."""
        return (self.directory / "build.log").read_text()


def verilog(component, *, name: str, ports=None) -> str:
    """Return the Verilog of an Amaranth ``component`` with ``name`` as top module.

    It is the text that users get: see :func:`hw.primitives.shared_module.emit_verilog`. Without
    ``ports``, name -> (signal, direction), the component's signature gives them, with double
    underscores (``i__payload``).
    """
    return emit_verilog(component, name=name, ports=ports, sources=current() is not None)


def build(
    verilog_sources: str | Mapping[str, str],
    *,
    toplevel: str,
    files: Sequence[str | Path] = (),
    parameters: Mapping[str, int | str] | None = None,
    defines: Mapping[str, int | str] | None = None,
    waves: bool = False,
    public_depth: int = 1,
    configuration: str = "",
    extra_args: Sequence[str] = (),
) -> Build:
    """Compile a design, or find it compiled.

    Parameters
    ----------
    verilog_sources : str or mapping of str to str
        Verilog text, or texts by file name (``.v`` or ``.sv``).
    toplevel : str
        Top module.
    files : sequence of paths
        Further Verilog files; their content, not their name, decides about the cache.
    parameters, defines : mapping
        Verilog parameters of the top module, and macros.
    waves : bool
        Compile waveform support in (slower).
    public_depth : int
        Hierarchy levels whose signals cocotb can see: 1 is the top module and thus all ports.
        Making everything visible costs a factor of 3.4 in speed.
    configuration : str
        Verilator configuration (``.vlt``) text after the `` `verilator_config`` line, for example
        ``public_flat_rd -module "core" -var "state"`` to see one inner signal.
    extra_args : sequence of str
        Further Verilator options.

    Raises
    ------
    BuildFailed
        Verilator or the compiler failed.
    """
    if isinstance(verilog_sources, str):
        verilog_sources = {f"{toplevel}.v": verilog_sources}
    sources = dict(verilog_sources)
    for file in map(Path, files):
        if file.name in sources:
            raise ValueError(f"Two Verilog sources have the same name {file.name!r}")
        sources[file.name] = file.read_text()
    if not sources:
        raise ValueError("Nothing to build: no Verilog source was given")
    if configuration:
        sources["configuration.vlt"] = f"`verilator_config\n{configuration}\n"
    if (tool := current()) is not None:
        added, more_args = tool.prepare(toplevel, sources)
        sources |= added
        extra_args = [*extra_args, *more_args]

    options = [
        "-cc", "--exe", "--vpi", "--public-depth", str(public_depth),
        "--prefix", "Vtop", "--top-module", toplevel, "-o", toplevel,
        "--timescale", "1ns/1ps", "-O3", "--x-assign", "fast", "--x-initial", "fast",
        "-Wno-fatal", "-Wno-lint", "-Wno-style", "--output-split", str(_OPERATIONS_IN_A_FILE),
        *(["--trace-vcd"] if waves else []),
        *(f"-G{key}={value}" for key, value in (parameters or {}).items()),
        *(f"-D{key}={value}" for key, value in (defines or {}).items()),
        *extra_args,
    ]  # fmt: skip
    identity = json.dumps([sources, options, environment.tool_versions(), 1], sort_keys=True)
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]

    start = time.monotonic()
    directory = environment.build_root() / "sim" / f"{toplevel}-{key}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.with_name(directory.name + ".lock")):
        cached = (directory / _COMPLETE).is_file()
        if not cached:
            with _removed_when_stopped(directory):
                _compile(directory, sources, options, waves)
            (directory / _COMPLETE).write_text(json.dumps(environment.tool_versions(), indent=2))
    return Build(
        toplevel=toplevel,
        directory=directory,
        executable=directory / toplevel,
        waves=waves,
        cached=cached,
        seconds=time.monotonic() - start,
    )


def run(
    design: Build,
    test_module: str,
    *,
    testcase: str | Sequence[str] | None = None,
    seed: int = DEFAULT_SEED,
    extra_env: Mapping[str, object] | None = None,
    plusargs: Sequence[str] = (),
    files: Mapping[str, str | bytes] | None = None,
    waves: bool = False,
    directory: str | Path | None = None,
    timeout_seconds: float = 3600.0,
    check: bool = True,
) -> Result:
    """Run the cocotb tests of a module, in a directory of their own.

    Parameters
    ----------
    test_module : str
        Importable name (``verif.fifo_bench``), or the path of a Python file.
    testcase : str, sequence of str or None
        Names of the tests to run; all when None. For a parametrized test, either its plain name
        (all its cases) or the full name of one case.
    seed : int
        Seeds Python's ``random`` in each test; tests read it as ``cocotb.RANDOM_SEED`` or, not
        mixed with the test's name, as environment variable ``ADAGP_SEED``.
    extra_env : mapping
        Environment variables for the tests; values become strings.
    files : mapping
        Files by relative name to put into the working directory first (memory images).
    waves : bool
        Leave ``dump.vcd``; the design must have been built with ``waves=True``.
    directory : path or None
        Working directory; by default a new one under ``build/runs/``, removed after a day.
    check : bool
        Raise when the run did not pass, instead of returning a result that says so.

    Raises
    ------
    SimulationFailed
        A test failed, none ran, a requested one is missing, or the simulator crashed or hung.
    """
    if waves and not design.waves:
        raise ValueError("Waveforms need a design that was built with waves=True")
    kept, directory = directory, _run_directory(design.toplevel, test_module, directory)
    for name, content in (files or {}).items():
        data = content.encode() if isinstance(content, str) else content
        (directory / name).write_bytes(data)
    results_file = directory / "results.xml"
    results_file.unlink(missing_ok=True)
    names = [testcase] if isinstance(testcase, str) else testcase

    variables = environment.simulation_environment()
    if test_module.endswith(".py"):
        path = Path(test_module).resolve()
        variables["PYTHONPATH"] = f"{path.parent}{os.pathsep}{variables['PYTHONPATH']}"
        test_module = path.stem
    variables |= {
        "COCOTB_TOPLEVEL": design.toplevel,
        "COCOTB_TEST_MODULES": test_module,
        "COCOTB_RANDOM_SEED": str(seed),
        "COCOTB_RESULTS_FILE": str(results_file),
        "ADAGP_SEED": str(seed),
    }
    if names is not None:
        alternatives = "|".join(re.escape(name) for name in names)
        variables["COCOTB_TEST_FILTER"] = rf"(^|\.)({alternatives})(/.*)?$"
    variables |= {key: str(value) for key, value in (extra_env or {}).items()}

    command = [str(design.executable), *(["--trace"] if waves else []), *plusargs]
    start = time.monotonic()
    removed = _removed_when_stopped(directory) if kept is None else contextlib.nullcontext()
    with removed, open(directory / "run.log", "w") as log:
        try:
            status = subprocess.run(
                command,
                cwd=directory,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=timeout_seconds,
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
    if (tool := current()) is not None:
        tool.collect(design.directory, directory)
    tests = parse_results(results_file)
    reason = judge(status, tests, names, timeout_seconds)
    result = Result(
        passed=not reason,
        reason=reason,
        tests=tests,
        directory=directory,
        waveform=directory / "dump.vcd" if waves else None,
        seed=seed,
        seconds=time.monotonic() - start,
    )
    if check and not result.passed:
        raise SimulationFailed(
            f"{test_module} on {design.toplevel}, seed {seed}: {reason}\n"
            f"{tail(result.log)}\n(whole log: {directory / 'run.log'})",
            result,
        )
    return result


def _compile(
    directory: Path, sources: Mapping[str, str], options: Sequence[str], waves: bool
) -> None:
    """Verilate and compile into ``directory``, which is emptied first."""
    shutil.rmtree(directory, ignore_errors=True)
    source_directory = directory / "src"
    source_directory.mkdir(parents=True)
    for name, text in sources.items():
        (source_directory / name).write_text(text)
    libraries = cocotb_config.libs_dir
    harness = Path(cocotb_config.share_dir) / "lib" / "verilator" / "verilator.cpp"
    link = f"-Wl,-rpath,{libraries} -L{libraries} -lcocotbvpi_verilator"
    ordered = sorted(sources, key=lambda name: (not name.endswith(".vlt"), name))
    verilate = [
        str(environment.verilator_binary()), *options, "-Mdir", str(directory),
        "-LDFLAGS", link, str(harness), *(str(source_directory / name) for name in ordered),
    ]  # fmt: skip
    compile_ = ["make", "-j", "2", "-C", str(directory), "-f", "Vtop.mk", f"VM_TRACE={int(waves)}"]
    variables = environment.tool_environment()
    log_file = directory / "build.log"
    with open(log_file, "w") as log:
        for command in (verilate, compile_):
            status = subprocess.run(
                command,
                cwd=directory,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            ).returncode
            if status != 0:
                raise BuildFailed(
                    f"{Path(command[0]).name} ended with status {status}\n"
                    f"{tail(log_file.read_text(errors='replace'))}\n(whole log: {log_file})"
                )


def _run_directory(toplevel: str, test_module: str, directory: str | Path | None) -> Path:
    """Return an existing working directory; old automatic ones are removed on the way."""
    if directory is not None:
        directory = Path(directory).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        return directory
    parent = environment.build_root() / "runs"
    parent.mkdir(parents=True, exist_ok=True)
    now = time.time()
    for old in parent.iterdir():
        with contextlib.suppress(OSError):
            if now - old.stat().st_mtime > _KEPT_RUN_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
    stem = re.sub(r"\W+", "_", Path(test_module).stem if "/" in test_module else test_module)
    return Path(tempfile.mkdtemp(prefix=f"{toplevel}-{stem}-", dir=parent))


@contextlib.contextmanager
def _removed_when_stopped(directory: Path) -> Iterator[None]:
    """What Ctrl-C leaves half done in ``directory`` is of no use to anybody."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory, ignore_errors=True)
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; the system releases it should the process die."""
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
