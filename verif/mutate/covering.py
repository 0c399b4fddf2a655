"""Which tests cover a file of the hardware."""

import ast
import re
from pathlib import Path

__all__ = ["GROUPS", "SYSTEM_TESTS", "covering_tests", "hardware_files"]

#: What is asked for when nothing is named, most important first.
GROUPS = ("hw/control", "hw/dma", "hw/bus")

#: Tests of the whole accelerator, for what the tests of a block leave alive.
SYSTEM_TESTS = ("tests/hw/test_accelerator.py", "tests/verif/system/test_batch_bench.py")

_COVERED = re.compile(r"\b(?:hw|verif)/[\w/]+\.py\b")


def hardware_files(root: Path, names) -> list[str]:
    """Files that ``names`` stand for: folders, files (``hw/dma/store.py``) or modules.

    Raises
    ------
    ValueError
        A name is no part of hw/, or holds no hardware.
    """
    files = []
    for name in names:
        plain = name.rstrip("/")
        if not (root / plain).exists() and "/" not in plain:
            plain = plain.replace(".", "/")
            plain = plain if (root / plain).is_dir() else f"{plain}.py"
        place = root / plain
        if not plain.startswith("hw") or not place.exists():
            raise ValueError(f"MODULE must be a file or folder of hw/, not {name!r}")
        if place.is_dir():
            found = sorted(place.rglob("*.py"))
        else:
            found = [place]
        found = [path.relative_to(root).as_posix() for path in found if _has_hardware(path)]
        if not found:
            raise ValueError(f"{name} holds no hardware (no Amaranth module)")
        files += [file for file in found if file not in files]
    return files


#: What a file takes from amaranth.hdl if it computes with signals.
_LOGIC = {"Const", "Mux"}


def _has_hardware(path):
    """Whether a file has an Amaranth module, or a function that makes logic."""
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "amaranth.hdl":
            if _LOGIC & {name.name for name in node.names}:
                return True
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return any(
        node.name == "elaborate" or any(argument.arg == "m" for argument in node.args.args)
        for node in functions
    )


def covering_tests(root: Path, file: str) -> list[str]:
    """Files of tests for ``file``: the one that mirrors it, and those whose docstring names it.

    Raises
    ------
    ValueError
        There is none.
    """
    path = Path(file)
    mirrors = [f"tests/{path.parent}/test_{path.stem}.py"]
    mirrors += [f"tests/{parent.parent}/test_{parent.name}.py" for parent in path.parents]
    tests = [name for name in mirrors if (root / name).is_file()][:1]
    for place in sorted((root / "tests").rglob("test_*.py")):
        text = place.read_text()
        if file not in text:
            continue
        docstring = ast.get_docstring(ast.parse(text)) or ""
        _, _, covers = docstring.partition("Covers:")
        name = place.relative_to(root).as_posix()
        if file in _COVERED.findall(covers) and name not in tests:
            tests.append(name)
    if not tests:
        raise ValueError(f"no test covers {file}")
    return tests
