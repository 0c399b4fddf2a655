"""Icarus Verilog: where it is, and how it gets here.

It is no Python package. ``make tools`` runs ``python -m verif.sim.icarus``, which takes the one on
``PATH`` or unpacks the distribution's own package below the build directory, by apt-get and without
installing anything. The version is the distribution's.
"""

import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .environment import ToolError, build_root

__all__ = ["LANGUAGE_LEVELS", "Icarus", "fetch", "find"]

#: What ``iverilog -g`` takes: the language standards that it knows.
LANGUAGE_LEVELS = ("1995", "2001", "2005", "2005-sv", "2009", "2012")

_PACKAGE = "iverilog"


@dataclass(frozen=True, kw_only=True)
class Icarus:
    """An installation.

    Members
    -------
    compiler, simulator : ``iverilog`` and ``vvp``
    base : directory of the compiler's parts; None: where it was built for
    """

    compiler: Path
    simulator: Path
    base: Path | None = None

    @functools.cached_property
    def version(self) -> str:
        """First line of what ``vvp -V`` says."""
        done = subprocess.run([self.simulator, "-V"], capture_output=True, text=True, check=True)
        return (done.stdout + done.stderr).splitlines()[0]

    def compile(
        self, sources: Sequence[Path], *, level: str, output: Path, include: Sequence[Path] = ()
    ) -> str:
        """Compile with all warnings for a language level; return what the compiler says.

        Raises
        ------
        ToolError
            It found an error.
        """
        if level not in LANGUAGE_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LANGUAGE_LEVELS)}, not {level!r}")
        command = [self.compiler, *([f"-B{self.base}"] if self.base else [])]
        command += [f"-g{level}", "-Wall", *(f"-I{path}" for path in include), "-o", output]
        done = subprocess.run([*command, *sources], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolError(f"iverilog -g{level} failed:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def run(self, program: Path, *, directory: Path, timeout_seconds: float = 300.0) -> str:
        """Run what :meth:`compile` wrote in ``directory``; return what it prints.

        Raises
        ------
        ToolError
            It failed or did not end in time.
        """
        command = [self.simulator, *([f"-M{self.base}"] if self.base else []), "-n", program]
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_seconds,
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"vvp {program} has not ended after {timeout_seconds:g} s") from None
        if done.returncode:
            raise ToolError(
                f"vvp {program} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout


def find() -> Icarus:
    """The installation on ``PATH``, or the unpacked one.

    Raises :class:`ToolError`, saying what to do, when there is neither.
    """
    compiler, simulator = shutil.which("iverilog"), shutil.which("vvp")
    if compiler and simulator:
        return Icarus(compiler=Path(compiler), simulator=Path(simulator))
    programs = _root() / "usr" / "bin"
    parts = next(_root().glob("usr/lib/**/ivl/ivl"), None)
    if parts and (programs / "iverilog").is_file() and (programs / "vvp").is_file():
        found = Icarus(
            compiler=programs / "iverilog", simulator=programs / "vvp", base=parts.parent
        )
        return found
    raise ToolError(
        "Icarus Verilog: not here; `make tools` unpacks it on Debian and Ubuntu, elsewhere install "
        "it so that iverilog and vvp are on PATH"
    )


def fetch() -> Icarus:
    """Unpack the distribution's package unless an installation is there; return it.

    Raises :class:`ToolError` where apt-get is missing or fails.
    """
    try:
        return find()
    except ToolError as missing:
        for program in ("apt-get", "dpkg-deb"):
            if shutil.which(program) is None:
                raise ToolError(f"{missing} (there is no {program})") from None
    root = _root()
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=".icarus-") as temporary:
        directory = Path(temporary)
        archive = _download(directory)
        unpacked = directory / "unpacked"
        _succeed(["dpkg-deb", "--extract", str(archive), str(unpacked)], directory)
        shutil.rmtree(root, ignore_errors=True)
        unpacked.replace(root)
    found = find()
    try:
        found.version  # noqa: B018 - whether it runs: libraries may be missing
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolError(f"Icarus Verilog was unpacked, but does not run: {error}") from None
    return found


def _root() -> Path:
    return build_root() / "icarus"


def _download(directory: Path) -> Path:
    """The package's file; with lists of packages of our own where the system has none."""
    download = ["apt-get", "download", "--quiet", _PACKAGE]
    try:
        _succeed(download, directory)
    except ToolError:
        for name in ("lists/partial", "cache/archives/partial"):
            (directory / name).mkdir(parents=True)
        own: Mapping[str, Path] = {
            "Dir::State::lists": directory / "lists",
            "Dir::Cache": directory / "cache",
        }
        options = [word for name, path in own.items() for word in ("-o", f"{name}={path}")]
        _succeed(["apt-get", *options, "--quiet", "update"], directory)
        _succeed(["apt-get", *options, *download[1:]], directory)
    archives = list(directory.glob("*.deb"))
    if len(archives) != 1:
        raise ToolError(f"apt-get download {_PACKAGE} gave {len(archives)} packages")
    return archives[0]


def _succeed(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ToolError(f"{' '.join(command[:1])} failed: {lines[-1] if lines else 'no message'}")


if __name__ == "__main__":
    try:
        print(fetch().version)
    except ToolError as error:
        sys.exit(str(error))
